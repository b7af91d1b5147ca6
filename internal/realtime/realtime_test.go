package realtime

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

func TestParse(t *testing.T) {
	ms := time.Millisecond
	for text, want := range map[string]Scheduler{
		"FIFO priority=20":                 {Policy: "FIFO", Priority: 20},
		" RR   priority=1 ":                {Policy: "RR", Priority: 1},
		"OTHER nice=-5":                    {Policy: "OTHER", Nice: -5},
		"BATCH":                            {Policy: "BATCH"},
		"DEADLINE period=10ms runtime=2ms": {Policy: "DEADLINE", Runtime: 2 * ms, Deadline: 10 * ms, Period: 10 * ms},
		"DEADLINE runtime=500us deadline=1ms period=4s": {Policy: "DEADLINE", Runtime: ms / 2, Deadline: ms, Period: 4000 * ms},
	} {
		got, err := ParseScheduler(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, not %+v: %v", text, got, want, err)
		}
		if again, err := ParseScheduler(got.String()); err != nil || again != want {
			t.Errorf("%q is written as %q: %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", " ", "fifo priority=1", "IDLE", "FIFO", "FIFO priority", "FIFO priority=", "FIFO priority=0", "FIFO priority=100",
		"FIFO priority=1 priority=1", "FIFO priority=1 nice=1", "OTHER nice=-21", "OTHER nice=20", "OTHER priority=1", "DEADLINE period=1s",
		"DEADLINE runtime=1ms", "DEADLINE runtime=2ms period=1ms", "DEADLINE runtime=2ms deadline=1ms period=3ms",
		"DEADLINE runtime=1ms deadline=3ms period=2ms", "DEADLINE runtime=1us period=1ms", "DEADLINE runtime=2us period=99us",
		"DEADLINE runtime=1ms period=5s", "DEADLINE runtime=-1ms period=1s", "DEADLINE runtime=9999999999h period=1s",
		"FIFO priority=99999999999999999999", "FIFO priority=1" + strings.Repeat(" ", maxValue),
	} {
		if got, err := ParseScheduler(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for text, want := range map[string]IOPriority{"idle": {Class: "idle"}, "realtime 7": {"realtime", 7}, "best-effort 0": {"best-effort", 0}} {
		if got, err := ParseIOPriority(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "idle 1", "realtime", "realtime 8", "best-effort -1", "best-effort 1 2", "none 1", strings.Repeat("x", 200)} {
		if got, err := ParseIOPriority(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// newPod returns a Guaranteed pod of the source file with the containers app and help, and annotations "PREFIX/CONTAINER".
func newPod(uid string, annotations map[string]string) *v1.Pod {
	p := podtest.New("plc-1", podtest.Namespace("line"), podtest.UID(uid), podtest.Source(keys.SourceFile), podtest.Containers())
	maps.Copy(p.Annotations, annotations)
	for _, name := range []string{"app", "help"} {
		limits := v1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("1Mi")}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}})
	}
	return p
}

func newNode() Node {
	return Node{
		Config: config.RealTime{Bandwidth: 50, BusyLimit: metav1.Duration{Duration: time.Second}, Pods: []config.RealTimePods{
			{Namespaces: []string{"line"}, Names: []string{"plc-*"}, Sources: []string{"file"}, Policies: []string{"FIFO", "DEADLINE", "OTHER"},
				MinNice: -5, IOClasses: []string{"best-effort"}, MaxLockedMemory: "64Mi", IsolatedCPUs: true},
			{Namespaces: []string{"*"}, Sources: []string{"api"}, Policies: []string{"RR"}, MaxPriority: 5},
		}},
		Kernel: Kernel{Throttle: 950 * time.Millisecond, Period: time.Second},
	}
}

// TestCheck checks that each request beyond the configuration or the kernel is refused with the annotation and the field.
func TestCheck(t *testing.T) {
	const app = "app"
	none := func(*v1.Pod, *Node) {}
	api := func(p *v1.Pod, _ *Node) { p.Annotations[keys.ConfigSource] = keys.SourceAPI }
	for name, c := range map[string]struct {
		key, value string
		change     func(*v1.Pod, *Node)
		reason     string   // empty if the request is allowed
		words      []string // the message contains them
	}{
		"fifo":             {keys.Scheduler, "FIFO priority=49", none, "", nil},
		"priority":         {keys.Scheduler, "FIFO priority=50", none, Forbidden, []string{"49", "maxPriority of realTime.pods[0]"}},
		"rule's priority":  {keys.Scheduler, "RR priority=6", api, Forbidden, []string{"maxPriority of realTime.pods[1]"}},
		"second rule":      {keys.Scheduler, "RR priority=5", api, "", nil},
		"policy":           {keys.Scheduler, "RR priority=1", none, Forbidden, []string{"policies of realTime.pods[0]"}},
		"nice":             {keys.Scheduler, "OTHER nice=-6", none, Forbidden, []string{"minNice of realTime.pods[0]"}},
		"low nice":         {keys.Scheduler, "OTHER nice=-5", none, "", nil},
		"io class":         {keys.IOPriority, "realtime 4", none, Forbidden, []string{"ioClasses of realTime.pods[0]"}},
		"io":               {keys.IOPriority, "best-effort 0", none, "", nil},
		"locked":           {keys.LockedMemory, "64Mi", none, "", nil},
		"more locked":      {keys.LockedMemory, "65Mi", none, Forbidden, []string{"maxLockedMemory of realTime.pods[0]"}},
		"odd locked":       {keys.LockedMemory, "-1", none, Forbidden, []string{"64Mi"}},
		"locked, no bound": {keys.LockedMemory, "1", api, Forbidden, []string{"maxLockedMemory of realTime.pods[1]"}},
		"invalid":          {keys.Scheduler, "FIFO", none, Forbidden, []string{"priority"}},
		"namespace": {keys.Scheduler, "FIFO priority=1", func(p *v1.Pod, _ *Node) { p.Namespace = "other" }, Forbidden,
			[]string{"no element of realTime.pods"}},
		"name":   {keys.Scheduler, "FIFO priority=1", func(p *v1.Pod, _ *Node) { p.Name = "web" }, Forbidden, []string{"realTime.pods"}},
		"source": {keys.Scheduler, "FIFO priority=1", func(p *v1.Pod, _ *Node) { p.Annotations[keys.ConfigSource] = "http" }, Forbidden, []string{"http"}},
		"off":    {keys.Scheduler, "FIFO priority=1", func(_ *v1.Pod, n *Node) { n.Config.Pods = nil }, Forbidden, []string{"realTime.pods"}},
		"remote": {keys.LockedMemory, "1", func(_ *v1.Pod, n *Node) { n.Remote = true }, Unavailable, []string{"containerRuntimeEndpoint"}},
		"stopped": {keys.Scheduler, "FIFO priority=1", func(_ *v1.Pod, n *Node) { n.Kernel.Throttle = 0 }, Unavailable,
			[]string{"kernel.sched_rt_runtime_us"}},
		"unthrottled": {keys.Scheduler, "FIFO priority=1", func(_ *v1.Pod, n *Node) { n.Kernel.Throttle = -1 }, Unavailable,
			[]string{"realTime.allowUnthrottled"}},
		"unthrottled, allowed": {keys.Scheduler, "FIFO priority=1", func(_ *v1.Pod, n *Node) {
			n.Kernel.Throttle, n.Config.AllowUnthrottled = -1, true
		}, "", nil},
		"unthrottled deadline": {keys.Scheduler, "DEADLINE runtime=1ms period=10ms", func(_ *v1.Pod, n *Node) { n.Kernel.Throttle = -1 }, "", nil},
		"deadline, static CPUs": {keys.Scheduler, "DEADLINE runtime=1ms period=10ms", func(_ *v1.Pod, n *Node) { n.StaticCPU = true },
			Unavailable, []string{"cpuManagerPolicy"}},
		"bandwidth": {keys.Scheduler, "DEADLINE runtime=51ms period=100ms", none, Unavailable, []string{"realTime.bandwidth", "51.0%"}},
		"budget": {keys.Scheduler, "FIFO priority=1", func(p *v1.Pod, n *Node) {
			n.Kernel.Budgets = true
			delete(p.Spec.Containers[1].Resources.Requests, "memory")
			delete(p.Spec.Containers[1].Resources.Limits, "memory")
		}, Unavailable, []string{"RT_GROUP_SCHED", "Guaranteed"}},
		"isolated": {keys.IsolatedCPUs, "true", none, Unavailable, []string{"whole CPUs"}},
		"isolated, whole": {keys.IsolatedCPUs, "true", func(p *v1.Pod, _ *Node) {
			p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1")
		}, "", nil},
		"isolated, rule": {keys.IsolatedCPUs, "true", api, Forbidden, []string{"isolatedCPUs of realTime.pods[1]"}},
		"isolated, odd":  {keys.IsolatedCPUs, "yes", none, Forbidden, []string{"true or false"}},
	} {
		pod, n := newPod("a", map[string]string{c.key + app: c.value}), newNode()
		c.change(pod, &n)
		_, err := Check(pod, nil, n)
		var refusal *Refusal
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.As(err, &refusal) || refusal.Reason != c.reason || !strings.Contains(refusal.Message, c.key+app) {
			t.Errorf("%s: %#v", name, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(refusal.Message, w) {
				t.Errorf("%s: %q does not contain %q", name, refusal.Message, w)
			}
		}
	}
	for _, missing := range []string{"none", "", strings.Repeat("x", 1<<16)} {
		if _, err := Check(newPod("a", map[string]string{keys.Scheduler + missing: "BATCH"}), nil, newNode()); err == nil || len(err.Error()) > 300 {
			t.Errorf("an annotation for container %.20q: %.400v", missing, err)
		}
	}
	pod := newPod("a", map[string]string{keys.Scheduler + "debug": "OTHER"})
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	if _, err := Check(pod, nil, newNode()); err == nil {
		t.Error("an ephemeral container may have real time")
	}
	if all, err := Check(newPod("a", nil), nil, Node{}); all != nil || err != nil {
		t.Errorf("a pod without annotations has %v: %v", all, err)
	}
}

// TestBandwidth checks that the node adds up the bandwidth of its pods, and that FIFO counts if cgroups have budgets.
func TestBandwidth(t *testing.T) {
	deadline := func(uid string, percent int) *v1.Pod {
		return newPod(uid, map[string]string{keys.Scheduler + "app": fmt.Sprintf("DEADLINE runtime=%dms period=100ms", percent)})
	}
	fifo := newPod("f", map[string]string{keys.Scheduler + "app": "FIFO priority=1", keys.Scheduler + "help": "FIFO priority=2"})
	plain, budgets, changed := newNode(), newNode(), newNode()
	changed.Running = func(uid types.UID) map[string]string {
		return map[types.UID]map[string]string{"b": {"app": "DEADLINE runtime=30ms period=100ms"}, "c": {"app": "nonsense"}}[uid]
	}
	budgets.Kernel.Budgets = true
	budgets.Config.Bandwidth = 70
	bad := newPod("bad", map[string]string{keys.Scheduler + "app": "DEADLINE runtime=90ms"})
	for name, c := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		n      Node
		fits   bool
	}{
		"exactly":           {deadline("a", 20), []*v1.Pod{deadline("b", 30)}, plain, true},
		"too much":          {deadline("a", 21), []*v1.Pod{deadline("b", 30)}, plain, false},
		"itself":            {deadline("a", 30), []*v1.Pod{deadline("a", 30)}, plain, true},
		"invalid":           {deadline("a", 50), []*v1.Pod{bad, newPod("c", nil)}, plain, true},
		"changed, exactly":  {deadline("a", 20), []*v1.Pod{newPod("b", nil), newPod("c", nil)}, changed, true},
		"changed, too much": {deadline("a", 21), []*v1.Pod{newPod("b", nil)}, changed, false},
		"changed to less":   {deadline("a", 21), []*v1.Pod{deadline("b", 10)}, changed, false},
		"changed to more":   {deadline("a", 20), []*v1.Pod{deadline("b", 31)}, changed, false},
		"another container": {newPod("b", map[string]string{keys.Scheduler + "help": "DEADLINE runtime=21ms period=100ms"}), nil, changed, false},
		"fifo":              {fifo, []*v1.Pod{deadline("b", 50)}, plain, true},
		"fifo with budget":  {fifo, []*v1.Pod{deadline("b", 10)}, budgets, true},
		"fifo with budgets": {fifo, []*v1.Pod{deadline("b", 11)}, budgets, false},
	} {
		if _, err := Check(c.pod, c.others, c.n); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := Check(fifo, nil, budgets)
	if want := 300 * time.Millisecond; err != nil || all["app"].Budget != want || all["app"].BusyLimit != time.Second {
		t.Errorf("settings %+v: %v", all, err)
	}
	if own, total := budgets.Budgets(fifo); own != 600*time.Millisecond || total != 700*time.Millisecond {
		t.Errorf("budgets %v of %v", own, total)
	}
	if own, _ := plain.Budgets(fifo); own != 0 {
		t.Errorf("budget %v on a kernel without budgets", own)
	}
	fifo.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2")
	if got := budgets.budget(fifo, "app"); got != budgets.Kernel.Throttle {
		t.Errorf("two CPUs have a budget of %v", got)
	}
}

func TestKernel(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	if got := ReadKernel(fstest.MapFS{}); got != (Kernel{950 * time.Millisecond, time.Second, false}) {
		t.Errorf("unknown: %+v", got)
	}
	got := ReadKernel(fstest.MapFS{"proc/sys/kernel/sched_rt_runtime_us": file("-1\n"), "proc/sys/kernel/sched_rt_period_us": file("500000\n"),
		"sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us": file("950000\n")})
	if got != (Kernel{-time.Microsecond, 500 * time.Millisecond, true}) {
		t.Errorf("got %+v", got)
	}
}

// FuzzAnnotations checks that the node never allows more than its configuration, whatever the annotations say, and that the runtime reads
// the settings that the node has allowed.
func FuzzAnnotations(f *testing.F) {
	f.Add("FIFO priority=49", "best-effort 1", "64Mi", "app")
	f.Add("DEADLINE runtime=1ms deadline=2ms period=3ms", "idle", "1e3", "help")
	f.Add("OTHER nice=-5", "realtime 0", "0.5", "app")
	f.Fuzz(func(t *testing.T, scheduler, io, locked, container string) {
		pod := newPod("a", map[string]string{keys.Scheduler + container: scheduler, keys.IOPriority + "app": io, keys.LockedMemory + "app": locked})
		n := newNode()
		all, err := Check(pod, nil, n)
		var refusal *Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Reason == "" || !strings.Contains(refusal.Message, "islet.dev/")) {
			t.Fatalf("refused without a reason: %v", err)
		}
		if err != nil {
			return
		}
		for name, s := range all {
			p := s.Scheduler
			if name != "app" && name != "help" || p.Policy == config.PolicyRR || p.Priority > config.DefaultMaxPriority || p.Nice < -5 ||
				s.IO.Class != "" && s.IO.Class != config.IOBestEffort || s.LockedMemory > 64<<20 || p.HasPriority() && s.BusyLimit == 0 ||
				p.Runtime > p.Period/2 {
				t.Errorf("container %s is allowed %+v", name, s)
			}
			annotations := map[string]string{}
			s.Annotate(annotations)
			if got, err := Read(annotations); err != nil || got != s {
				t.Errorf("%+v is read as %+v: %v", s, got, err)
			}
		}
	})
}
