package pods

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

func (w *world) count(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = append(w.counts, fmt.Sprintf(format, args...))
}

func (w *world) CountRequested(resource, requirement, operation string) {
	w.count("%s %s %s", operation, resource, requirement)
}
func (w *world) CountInfeasible(detail string) { w.count("infeasible %s", detail) }
func (w *world) CountAccepted(trigger string)  { w.count("accepted %s", trigger) }
func (w *world) ObserveResolved(how, priority string, after time.Duration) {
	if after < 0 || after > time.Hour {
		priority = after.String()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolutions = append(w.resolutions, how+" "+priority)
}

func (w *world) checkCounts(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.counts, want) {
		t.Errorf("counted %q, not %q", w.counts, want)
	}
	w.counts = nil
}

// generation returns a pod with the generation n that requests cpu.
func generation(n int64, name, cpu string) *v1.Pod {
	p := aPod(name, cpu, 0)
	p.Generation = n
	return p
}

// sync performs one round of the worker. It allocates resources if a decision is needed, and then updates the status. If the parameter late
// is false, the containers get the allocated resources at once.
func (w *world) sync(t *testing.T, late bool, uids ...types.UID) {
	t.Helper()
	for _, uid := range uids {
		if got, _ := w.Get(uid); got.Undecided {
			if err := w.Allocate(t.Context(), uid); err != nil {
				t.Errorf("allocate to %s: %v", uid, err)
			}
		}
		got, ok := w.Get(uid)
		if got.Undecided || !ok {
			t.Errorf("%s: known %v, undecided %v", uid, ok, got.Undecided)
		}
		shares := got.Pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		has := &plan.Resources{Shares: shares}
		if late {
			has = &plan.Resources{Shares: 1}
		}
		w.mu.Lock()
		w.inputs[uid] = plan.Input{UID: uid, Want: got.Pod, Admitted: true, Pending: got.Pending, Now: time.Now(), Sizes: map[string]plan.Size{"c": {Resources: plan.Resources{Shares: shares}}},
			Observed: plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s", Ready: true}}, Containers: []plan.Container{{ID: "1", Name: "c", SandboxID: "s", State: plan.Running, Resources: has}}}}
		w.mu.Unlock()
		w.refreshStatus(uid)
	}
}

// allocatedTo returns the allocated CPU of a pod. If the pod has a pending resize, the reason follows.
func (w *world) allocatedTo(uid types.UID) string {
	got, _ := w.Get(uid)
	cpu := got.Pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]
	if got.Pending.Reason == "" {
		return cpu.String()
	}
	return cpu.String() + " " + got.Pending.Reason
}

func (w *world) give(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if got := w.allocatedTo(uid); got != want {
		t.Errorf("%s has %q, not %q", uid, got, want)
	}
}

// TestResizeIsAllocated checks that a running pod is resized if the node has enough resources. Otherwise the resize is deferred. The state
// survives a restart of the agent, and each event is sent once.
func TestResizeIsAllocated(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, generation(1, "a", "1"), generation(1, "b", "2"))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "admitted")
	w.sync(t, false, "a", "b")
	w.checkEvents(t)

	w.setPods(t, desired.API, generation(2, "a", "2"), generation(1, "b", "2"))
	w.give(t, "a", "1") // reading makes no decision
	w.sync(t, true, "a")
	w.give(t, "a", "2")
	w.checkEvents(t, "Normal a ResizeStarted")
	w.sync(t, false, "a")
	w.checkEvents(t, "Normal a ResizeCompleted")
	w.checkCounts(t, "increase cpu requests")

	w.setPods(t, desired.API, generation(3, "a", "3"), generation(1, "b", "2"))
	w.sync(t, false, "a")
	w.give(t, "a", "2 Deferred")
	w.checkEvents(t, "Warning a ResizeDeferred")
	w.NodeChanged()
	w.sync(t, false, "a")
	w.checkEvents(t)
	if c, ok := resizeCondition(new(w.Status("a")), v1.PodResizePending); !ok || c.ObservedGeneration != 3 ||
		c.Message != "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000" {
		t.Errorf("condition %+v", c)
	}
	if pending, moving := w.Resizing(); pending[[2]string{"Deferred", "normal"}] != 1 || moving != 0 {
		t.Errorf("%v pending, %d in progress", pending, moving)
	}
	w.restart(t, "a", "b")
	for uid, resized := range map[types.UID]bool{"a": true, "b": false} { // only a was resized
		if got, _ := w.Get(uid); got.Resized != resized {
			t.Errorf("pod %s was resized: %v", uid, got.Resized)
		}
	}
	w.give(t, "a", "2")
	w.sync(t, false, "a", "b")
	w.give(t, "a", "2 Deferred")
	w.checkEvents(t)

	w.inputs["b"] = plan.Input{Want: w.inputs["b"].Want, Admitted: true, End: &plan.End{Reason: "Evicted"}} // the pod is evicted
	w.refreshStatus("b")
	if w.poked["a"] == 0 {
		t.Error("the waiting pod was not notified")
	}
	w.sync(t, false, "a")
	w.give(t, "a", "3")
	w.checkEvents(t, "Normal a ResizeStarted", "Normal a ResizeCompleted")
	w.checkCounts(t, "increase cpu requests", "accepted pod_terminated")
	if pending, _ := w.Resizing(); len(pending) > 0 {
		t.Errorf("%v pending", pending)
	}
}

// TestResizeHoldsWhatItHad checks that a pod occupies its former resources until its containers are reduced, even after a restart of the
// agent.
func TestResizeHoldsWhatItHad(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, generation(1, "a", "3"), generation(1, "b", "2"))
	w.admit(t, "a", "admitted")
	w.sync(t, false, "a")
	w.setPods(t, desired.API, generation(2, "a", "1"), generation(1, "b", "2"), generation(1, "c", "2"))
	w.sync(t, true, "a")
	w.give(t, "a", "1")
	w.admit(t, "b", "OutOfcpu")
	w.restart(t, "a")
	w.give(t, "a", "1")
	w.sync(t, false, "a")
	w.admit(t, "c", "admitted")
}

// TestRestoresWhatItHad checks that after a restart of the agent during a resize, a pod holds the former resources of each kind of
// container and of the pod as a whole.
func TestRestoresWhatItHad(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	small, large := podtest.CPUAndMemory("1", "1Gi"), podtest.CPUAndMemory("3", "4Gi")
	form := func(requests v1.ResourceList) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: requests}
	}
	status := []v1.ContainerStatus{{Name: "x", Resources: new(form(large))}}
	for name, tt := range map[string]struct {
		spec   v1.PodSpec
		status v1.PodStatus
	}{
		"a main container":  {v1.PodSpec{Containers: []v1.Container{{Name: "x", Resources: form(small)}}}, v1.PodStatus{ContainerStatuses: status}},
		"a sidecar":         {v1.PodSpec{InitContainers: []v1.Container{{Name: "x", Resources: form(small), RestartPolicy: &always}}}, v1.PodStatus{InitContainerStatuses: status}},
		"an init container": {v1.PodSpec{InitContainers: []v1.Container{{Name: "x", Resources: form(small)}}}, v1.PodStatus{InitContainerStatuses: status}},
		"the pod":           {v1.PodSpec{Resources: new(form(small))}, v1.PodStatus{Resources: new(form(large))}},
		"no requests":       {v1.PodSpec{Resources: new(form(large))}, v1.PodStatus{Resources: new(form(nil))}},
	} {
		pod := podtest.New("a")
		pod.Spec = tt.spec
		tt.status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
		a := &allocation{}
		if a.restoreResize(pod, &tt.status); !a.resizing || a.maxInUse.Cpu().String() != "3" || a.maxInUse.Memory().String() != "4Gi" {
			t.Errorf("%s: holds %v", name, a.maxInUse)
		}
	}
}

// TestResizeUnseen checks a pod whose spec changed just before the agent ended. The restarted agent reads the pod's allocated resources
// from its sandbox.
func TestResizeUnseen(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, generation(1, "a", "1"))
	w.admit(t, "a", "admitted")
	w.sync(t, false, "a")
	was := generation(1, "a", "1")
	w.setPods(t, desired.API, generation(2, "a", "5"))
	w.made = map[types.UID]*v1.Pod{"a": was}
	w.restart(t, "a")
	w.give(t, "a", "1")
	w.sync(t, false, "a")
	w.give(t, "a", "1 Deferred")
}

// TestResizeOrder checks that resources are allocated by priority, regardless of which pod requests them first. A decision takes effect
// when it is stored. An infeasible resize is not retried.
func TestResizeOrder(t *testing.T) {
	w := newWorld(t)
	high := func(n int64, cpu string) *v1.Pod {
		p := generation(n, "high", cpu)
		p.Spec.Priority = new(int32(7))
		return p
	}
	w.setPods(t, desired.API, generation(1, "low", "1"), high(1, "1"))
	w.admit(t, "low", "admitted")
	w.admit(t, "high", "admitted")
	w.setPods(t, desired.API, generation(2, "low", "2"), high(2, "3"))
	w.broken = true
	if err := w.Allocate(t.Context(), "low"); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	w.give(t, "high", "1")
	w.checkEvents(t, "Warning low ResizeDeferred")
	w.broken = false
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := w.Allocate(t.Context(), "low"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.give(t, "high", "3")
	w.give(t, "low", "1 Deferred")
	w.checkEvents(t, "Normal high ResizeStarted")
	w.sync(t, false, "high", "low")
	w.checkEvents(t, "Normal high ResizeCompleted")

	guaranteed := generation(3, "low", "1")
	guaranteed.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: guaranteed.Spec.Containers[0].Resources.Requests[v1.ResourceCPU], v1.ResourceMemory: guaranteed.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]}
	w.setPods(t, desired.API, guaranteed, high(2, "3"))
	w.sync(t, false, "low")
	w.give(t, "low", "1 Infeasible")
	w.checkEvents(t, "Warning low ResizeInfeasible")
	w.NodeChanged()
	if got, _ := w.Get("low"); got.Undecided {
		t.Error("an infeasible resize is tried again")
	}
	w.setPods(t, desired.API, generation(4, "low", "1"), high(2, "3"))
	w.sync(t, false, "low")
	w.give(t, "low", "1")
	w.checkCounts(t, "infeasible qos_class", "add memory limits", "decrease cpu requests", "add cpu limits", "remove memory limits",
		"remove cpu limits")
}

// TestResizeError checks that a failed resize causes one event for each reason.
func TestResizeError(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, generation(1, "a", "1"))
	w.admit(t, "a", "admitted")
	w.sync(t, false, "a")
	w.setPods(t, desired.API, generation(2, "a", "2"))
	w.sync(t, true, "a")
	w.checkEvents(t, "Normal a ResizeStarted")
	for _, why := range []string{"cannot", "cannot", "cannot either"} {
		in := w.Input("a")
		in.Failed = map[plan.Key]plan.Failure{{Op: plan.Resize}: {Message: why}}
		w.mu.Lock()
		w.inputs["a"] = in
		w.mu.Unlock()
		w.refreshStatus("a")
	}
	w.checkEvents(t, "Warning a ResizeError", "Warning a ResizeError")
	w.sync(t, false, "a")
	w.checkEvents(t, "Normal a ResizeCompleted")
}

// TestResizePreempts checks that pods are preempted for the resize of a critical pod, as for its admission. The resize is deferred until
// these pods have ended. The deferral survives a restart of the agent.
func TestResizePreempts(t *testing.T) {
	w := newWorld(t)
	system := func(n int64, cpu string) *v1.Pod {
		p := generation(n, "system", cpu)
		p.Spec.Priority = new(int32(2_000_000_000))
		return p
	}
	rest := []*v1.Pod{generation(1, "victim", "2"), generation(1, "small", "1")}
	w.setPods(t, desired.API, append(rest, system(1, "1"))...)
	for _, uid := range []types.UID{"victim", "small", "system"} {
		w.admit(t, uid, "admitted")
		w.showState(t, uid, plan.Running)
	}
	w.events = nil
	w.setPods(t, desired.API, append(rest, system(2, "2500m"))...)
	w.broken = true
	if err := w.Allocate(t.Context(), "system"); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	w.checkDecision(t, "victim", "admitted")
	w.broken = false
	w.sync(t, false, "system")
	w.checkDecision(t, "victim", "Preempting")
	w.checkDecision(t, "small", "admitted")
	w.give(t, "system", "1 Deferred")
	w.checkEvents(t, "Warning system ResizeDeferred", "Warning victim Preempting")
	if len(w.preempted) != 1 || w.preempted[0] != "cpu" {
		t.Errorf("counted %q", w.preempted)
	}
	w.NodeChanged()
	w.sync(t, false, "system")
	w.made = map[types.UID]*v1.Pod{"system": system(1, "1")} // spec in the pod's sandbox
	w.restart(t, "victim", "small", "system")
	w.sync(t, false, "system")
	w.checkDecision(t, "victim", "Preempting")
	w.checkDecision(t, "small", "admitted")
	w.give(t, "system", "1 Deferred")
	w.showState(t, "victim", plan.Exited)
	w.sync(t, false, "system")
	w.give(t, "system", "2500m")
	w.checkDecision(t, "small", "admitted")

	w.setPods(t, desired.API, append(rest, system(3, "5"))...)
	w.sync(t, false, "system")
	w.give(t, "system", "2500m Deferred")
	w.checkDecision(t, "small", "admitted") // the resources of this pod would not suffice
}

// TestDeferredResizeResolved checks that a deferred resize is counted once, with its result.
func TestDeferredResizeResolved(t *testing.T) {
	w := newWorld(t)
	resolved := func(want ...string) {
		t.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Equal(w.resolutions, want) {
			t.Errorf("resolved %q, not %q", w.resolutions, want)
		}
		w.resolutions = nil
	}
	w.setPods(t, desired.API, generation(1, "a", "1"), generation(1, "b", "2"))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "admitted")
	w.sync(t, false, "a", "b")
	resolved()

	w.setPods(t, desired.API, generation(2, "a", "3"), generation(1, "b", "2"))
	w.sync(t, false, "a")
	w.give(t, "a", "1 Deferred")
	w.sync(t, false, "a")
	resolved()
	w.setPods(t, desired.API, generation(3, "a", "1"), generation(1, "b", "2"))
	w.sync(t, false, "a")
	w.give(t, "a", "1")
	resolved("reverted normal")

	w.setPods(t, desired.API, generation(4, "a", "3"), generation(1, "b", "2"))
	w.sync(t, false, "a")
	w.give(t, "a", "1 Deferred")
	w.setPods(t, desired.API, generation(4, "a", "3"), generation(2, "b", "1"))
	w.sync(t, false, "b")
	w.sync(t, false, "a")
	w.give(t, "a", "3")
	resolved("accepted normal")

	w.setPods(t, desired.API, generation(4, "a", "3"), generation(3, "b", "2"))
	w.sync(t, false, "b")
	w.give(t, "b", "1 Deferred")
	resolved()
	if err := w.Drop(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	resolved("terminated unknown")
}
