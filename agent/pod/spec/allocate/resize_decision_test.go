package allocate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/allocate"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/podtest"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func pod(name string, requests, limits v1.ResourceList, change ...func(*v1.Pod)) *v1.Pod {
	p := podtest.New(name, podtest.Namespace(""), podtest.Image("app"), podtest.Requests(requests), podtest.Limits(limits))
	for _, f := range change {
		f(p)
	}
	return p
}

var room = admit.Node{Allocatable: list("cpu", "4", "memory", "1Gi")}

func TestDecide(t *testing.T) {
	small := pod("a", list("cpu", "1"), list("memory", "64Mi"))
	other := admit.NewHolder(pod("b", list("cpu", "2"), nil))
	whole := func(cpu string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", cpu), Limits: list("cpu", "4")}
		}
	}
	for name, tt := range map[string]struct {
		wanted, has *v1.Pod
		want        string
	}{
		"more":          {pod("a", list("cpu", "2"), list("memory", "128Mi")), small, ""},
		"less":          {pod("a", list("cpu", "500m"), list("memory", "32Mi")), small, ""},
		"no room":       {pod("a", list("cpu", "2500m"), list("memory", "64Mi")), small, "Deferred: Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000"},
		"never":         {pod("a", list("cpu", "9"), list("memory", "64Mi")), small, "Deferred: Node didn't have enough resource: cpu, requested: 9000, used: 2000, capacity: 4000"},
		"class":         {pod("a", list("cpu", "1", "memory", "64Mi"), list("cpu", "1", "memory", "64Mi")), small, "Infeasible: Pod QOS Class may not change as a result of resizing"},
		"limit removed": {pod("a", list("cpu", "1"), nil), small, "Infeasible: resource limits cannot be removed"},
		"limit added":   {pod("a", list("cpu", "1"), list("memory", "64Mi", "cpu", "2")), small, ""},
		"other":         {pod("a", list("cpu", "1", "hugepages-2Mi", "4Mi"), list("memory", "64Mi")), small, "Infeasible: only cpu and memory resources are mutable"},
		"whole":         {pod("a", nil, nil, whole("2")), pod("a", nil, nil, whole("1")), ""},
		"too much":      {pod("a", nil, nil, whole("3")), pod("a", nil, nil, whole("1")), "Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"},
	} {
		got := ""
		if r := allocate.Decide(tt.wanted, tt.has, []*admit.Holder{other}, room); r != nil {
			got = r.Reason + ": " + r.Message
			if (r.Detail != "") != (r.Reason == v1.PodReasonInfeasible) {
				t.Errorf("%s: detail %q of %s", name, r.Detail, r.Reason)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, not %q", name, got, tt.want)
		}
	}
}

// TestSwapLimitation checks that a resize of the memory request is infeasible if the container may use swap before or after the resize, as
// with a kubelet. A container that restarts for the resize may be resized.
func TestSwapLimitation(t *testing.T) {
	n := room
	n.HasSwap = (&translate.Node{SwapCgroup: 2, SwapBytes: 1 << 30, MemoryBytes: 4 << 30}).HasSwap
	sized := func(request, limit string, change ...func(*v1.Pod)) *v1.Pod {
		return pod("a", list("cpu", "1", "memory", request), list("memory", limit), change...)
	}
	policy := func(name v1.ResourceName, p v1.ResourceResizeRestartPolicy) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: p}}
		}
	}
	critical := func(pod *v1.Pod) { pod.Spec.Priority = new(int32(2_000_000_000)) }
	asInit := func(pod *v1.Pod) {
		pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, []v1.Container{{Name: "main"}}
		pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	for name, tt := range map[string]struct {
		wanted, has *v1.Pod
		infeasible  bool
	}{
		"request":         {sized("32Mi", "64Mi"), sized("16Mi", "64Mi"), true},
		"of a sidecar":    {sized("32Mi", "64Mi", asInit), sized("16Mi", "64Mi", asInit), true},
		"swap begins":     {sized("32Mi", "64Mi"), sized("64Mi", "64Mi"), true},
		"swap ends":       {sized("64Mi", "64Mi"), sized("32Mi", "64Mi"), true},
		"never swap":      {sized("64Mi", "64Mi"), sized("32Mi", "32Mi"), false},
		"limit":           {sized("32Mi", "64Mi"), sized("32Mi", "48Mi"), false},
		"cpu":             {pod("a", list("cpu", "2", "memory", "1Mi"), nil), pod("a", list("cpu", "1", "memory", "1Mi"), nil), false},
		"critical":        {sized("32Mi", "64Mi", critical), sized("16Mi", "64Mi", critical), false},
		"restarts":        {sized("32Mi", "64Mi"), sized("16Mi", "64Mi", policy("memory", v1.RestartContainer)), false},
		"restart for cpu": {sized("32Mi", "64Mi"), sized("16Mi", "64Mi", policy("cpu", v1.RestartContainer)), true},
		"no restart":      {sized("32Mi", "64Mi"), sized("16Mi", "64Mi", policy("memory", v1.NotRequired)), true},
	} {
		r := allocate.Decide(tt.wanted, tt.has, nil, n)
		if got := r != nil && r.Detail == "swap_limitation" && r.Reason == v1.PodReasonInfeasible; got != tt.infeasible || r != nil && !got {
			t.Errorf("%s: %+v", name, r)
		}
		if r := allocate.Decide(tt.wanted, tt.has, nil, room); r != nil {
			t.Errorf("%s, on a node without swap: %+v", name, r)
		}
	}
}

// TestApply checks that the allocated resources replace the desired ones. Nothing else in the pod changes.
func TestApply(t *testing.T) {
	wanted, has := pod("a", list("cpu", "2"), nil), pod("a", list("cpu", "1"), nil)
	wanted.Spec.Containers = append(wanted.Spec.Containers, v1.Container{Name: "late", Resources: v1.ResourceRequirements{Requests: list("cpu", "7")}})
	keep := wanted.DeepCopy()
	got := allocate.Apply(wanted, allocate.AllocatedPart(&has.Spec))
	if cpu := got.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" || got.Spec.Containers[0].Image != "app" ||
		len(got.Spec.Containers) != 2 {
		t.Errorf("got %+v", got.Spec)
	}
	if !equality.Semantic.DeepEqual(wanted, keep) {
		t.Error("the wanted pod was changed")
	}
	for _, given := range []*v1.PodSpec{nil, allocate.AllocatedPart(&wanted.Spec), {}} {
		if allocate.Apply(wanted, given) != wanted && given != nil && len(given.Containers) > 0 {
			t.Errorf("%+v: an unchanged pod was copied", given)
		}
	}
}

func TestSort(t *testing.T) {
	prior := func(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	one, two := list("cpu", "1"), list("cpu", "2")
	same := list("cpu", "2", "memory", "1Mi")
	all := []allocate.WaitingResize{
		{pod("new", two, nil), pod("new", one, nil), time.Time{}},
		{pod("old", two, nil), pod("old", one, nil), at(1)},
		{pod("young", two, nil), pod("young", one, nil), at(2)},
		{pod("guaranteed", same, same), pod("guaranteed", one, nil), at(3)},
		{pod("important", two, nil, prior(5)), pod("important", one, nil), at(4)},
		{pod("less", one, nil, prior(-5)), pod("less", two, nil), at(5)},
	}
	for range len(all) { // each order
		all = append(all[1:], all[0])
		list := slices.Clone(all)
		allocate.Sort(list)
		var names []string
		for _, w := range list {
			names = append(names, w.Wanted.Name)
		}
		if got := strings.Join(names, " "); got != "less important guaranteed old young new" {
			t.Fatalf("got %s", got)
		}
	}
}

func TestRequests(t *testing.T) {
	before := pod("a", list("cpu", "1", "memory", "1Mi"), list("memory", "2Mi"))
	now := pod("a", list("cpu", "2"), list("memory", "1Mi", "cpu", "3"))
	want := []allocate.Request{{"memory", "requests", "remove"}, {"memory", "limits", "decrease"}, {"cpu", "requests", "increase"}, {"cpu", "limits", "add"}}
	if got := allocate.Requests(&before.Spec, &now.Spec); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := allocate.Requests(&now.Spec, &now.Spec); len(got) > 0 {
		t.Errorf("without resources: %v", got)
	}
}

func TestMessage(t *testing.T) {
	p := pod("a", list("cpu", "100m", "memory", "100"), list("cpu", "200m"))
	want := `Pod resize Deferred: {"containers":[{"name":"c","resources":{"limits":{"cpu":"200m"},"requests":{"cpu":"100m","memory":"100"}}}],"generation":7,"error":"no room"}`
	if got := allocate.Message("Pod resize Deferred", p, 7, "no room"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
