package demand_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

// TestPodLevel checks that spec.resources applies to the pod as a whole, and to containers without their own values (KEP-2837).
func TestPodLevel(t *testing.T) {
	limited := v1.Container{Name: "limited", Resources: v1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "10Mi"), Limits: list("cpu", "200m", "memory", "20Mi")}}
	free := v1.Container{Name: "free"}
	for _, tt := range []struct {
		name             string
		of               *v1.ResourceRequirements
		overhead         v1.ResourceList
		class            v1.PodQOSClass
		cpu, memory      string // requests
		cpuMax, bytesMax string // limits; if empty, there is no limit
		ownCPU, ownBytes string // requests of the container "free"
		oom              string // memory request that the OOM killer uses for the container "free"
	}{
		{"none", nil, nil, v1.PodQOSBurstable, "100m", "10Mi", "", "", "0", "0", "0"},
		{"empty", &v1.ResourceRequirements{}, nil, v1.PodQOSBurstable, "100m", "10Mi", "", "", "0", "0", "0"}, // as the API server computes it
		{"limits", &v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "64Mi")}, nil, v1.PodQOSGuaranteed, "100m", "10Mi", "1", "64Mi", "1", "64Mi", "0"},
		{"both equal", &v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "64Mi"), Limits: list("cpu", "1", "memory", "64Mi")}, nil,
			v1.PodQOSGuaranteed, "1", "64Mi", "1", "64Mi", "1", "64Mi", "27Mi"},
		{"requests", &v1.ResourceRequirements{Requests: list("memory", "50Mi")}, nil, v1.PodQOSBurstable, "100m", "50Mi", "", "", "0", "0", "20Mi"},
		{"one limit", &v1.ResourceRequirements{Requests: list("memory", "50Mi"), Limits: list("memory", "60Mi")}, list("memory", "4Mi", "cpu", "10m"),
			v1.PodQOSBurstable, "110m", "54Mi", "", "64Mi", "0", "60Mi", "20Mi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{limited, free}, Resources: tt.of, Overhead: tt.overhead}}
			if got := demand.Class(p); got != tt.class {
				t.Errorf("class %s", got)
			}
			same := func(what string, got resource.Quantity, want string) {
				t.Helper()
				if got.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s: %s, not %s", what, got.String(), want)
				}
			}
			requests, own := demand.Requests(p), demand.EffectiveLimits(p, &free)
			same("CPU asked for", requests[v1.ResourceCPU], tt.cpu)
			same("memory asked for", requests[v1.ResourceMemory], tt.memory)
			same("CPU of the container", own[v1.ResourceCPU], tt.ownCPU)
			same("memory of the container", own[v1.ResourceMemory], tt.ownBytes)
			if tt.name != "both equal" { // not used in this case
				same("memory for the OOM killer", *resource.NewQuantity(demand.ScoreMemory(p, &free), resource.BinarySI), tt.oom)
			}
			for name, want := range map[v1.ResourceName]string{v1.ResourceCPU: tt.cpuMax, v1.ResourceMemory: tt.bytesMax} {
				if got := demand.IsLimited(p, name); got != (want != "") {
					t.Errorf("%s limited: %t", name, got)
				} else if got {
					same("limit of "+string(name), demand.Limits(p)[name], want)
				}
			}
			if got := demand.EffectiveLimits(p, &limited); got.Memory().String() != "20Mi" {
				t.Errorf("a container's own limit is %s", got.Memory())
			}
		})
	}
}

// TestSidecarMemory checks that a sidecar is not killed before the main containers.
func TestSidecarMemory(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	main := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list("memory", "10Mi")}}
	side := v1.Container{Name: "s", RestartPolicy: &always}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{main}, InitContainers: []v1.Container{side, {Name: "i"}}}}
	if got := demand.ScoreMemory(p, &side); got != 10<<20 {
		t.Errorf("the sidecar has %d", got)
	}
	if got := demand.ScoreMemory(p, &p.Spec.InitContainers[1]); got != 0 {
		t.Errorf("the init container has %d", got)
	}
}

// TestHostile checks that no pod causes a panic.
func TestHostile(t *testing.T) {
	for _, p := range []*v1.Pod{{}, {Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: list("memory", "-1"), Limits: list("example.com/x", "1", "hugepages-2Mi", "0")}}},
		{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("cpu", "9E", "memory", "-9E")}}}, Overhead: list("cpu", "9E")}}} {
		demand.Class(p)
		demand.Requests(p)
		demand.Limits(p)
		demand.IsLimited(p, v1.ResourceCPU)
		ctr := &v1.Container{}
		demand.EffectiveLimits(p, ctr)
		if m := demand.ScoreMemory(p, ctr); m < 0 {
			t.Errorf("%d bytes", m)
		}
	}
}

func TestRequests(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	cpu := func(name, q string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(q)}}}
	}
	sidecar := cpu("s", "3")
	sidecar.RestartPolicy = &always
	for _, tt := range []struct {
		inits []v1.Container
		want  string
	}{
		{nil, "2"},
		{[]v1.Container{cpu("i", "5")}, "5"},
		{[]v1.Container{cpu("i", "1")}, "2"},
		{[]v1.Container{sidecar}, "5"},
		{[]v1.Container{sidecar, cpu("i", "4")}, "7"},
		{[]v1.Container{cpu("i", "4"), sidecar}, "5"},
	} {
		p := &v1.Pod{}
		p.Spec.Containers, p.Spec.InitContainers = []v1.Container{cpu("c", "1"), cpu("d", "1")}, tt.inits
		if got := demand.Requests(p)[v1.ResourceCPU]; got.String() != tt.want {
			t.Errorf("%d init containers: %s, not %s", len(tt.inits), got.String(), tt.want)
		}
	}
}
