package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

var memory = plan.End{Reason: plan.Evicted, Message: "The node was low on resource: memory. ", Grace: time.Second, Disrupted: true}

// This helper returns a node whose running pod p is evicted.
func evicted(t *testing.T, source string) *world {
	w := newWorld(t)
	w.setPods(t, source, aPod("p", "1", 0))
	w.admit(t, "p", "admitted")
	w.showState(t, "p", plan.Running)
	if !w.Evict(t.Context(), "p", memory) {
		t.Fatal("not evicted")
	}
	return w
}

// checkEvicted checks that the pod's status is that of an evicted pod.
func (w *world) checkEvicted(t *testing.T) {
	t.Helper()
	if s := w.Status("p"); s.Phase != v1.PodFailed || s.Reason != plan.Evicted || s.Message != memory.Message || !disrupted(s) {
		t.Errorf("shown as %+v", s)
	}
}

// TestEvicts checks that a pod is evicted once. Its status becomes Failed when its last container has ended. Its containers may be removed
// only after that.
func TestEvicts(t *testing.T) {
	w := evicted(t, desired.API)
	if got, _ := w.Get("p"); got.End == nil || *got.End != memory || w.poked["p"] == 0 {
		t.Errorf("%+v, poked %v", got.End, w.poked)
	}
	if len(w.Active()) > 0 || w.Evict(t.Context(), "p", memory) {
		t.Error("evicted twice")
	}
	w.showState(t, "p", plan.Running)
	if s := w.Status("p"); s.Phase == v1.PodFailed || !disrupted(s) {
		t.Errorf("while the pod ends: %+v", s)
	}
	w.poked["p"] = 0
	w.showState(t, "p", plan.Exited)
	w.checkEvicted(t)
	if got, _ := w.Get("p"); got.End.Phase != v1.PodFailed || got.End.Reason != plan.Evicted || w.poked["p"] == 0 {
		t.Errorf("%+v, poked %v", got.End, w.poked)
	}
	in := w.Input("p")
	got, _ := w.Get("p")
	in.Observed.Containers, in.End, in.Ended = nil, got.End, true
	if w.ResourcesReleased("p") {
		t.Error("cleared while containers exist")
	}
	w.inputs["p"] = in
	w.refreshStatus("p")
	w.checkEvicted(t)
	if s := w.Status("p"); !w.ResourcesReleased("p") || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated == nil ||
		s.ContainerStatuses[0].State.Terminated.ExitCode != 137 {
		t.Errorf("without its containers: %+v", s)
	}
}

// TestEvictedSurvives checks that an eviction continues after the agent was killed. The agent is killed before the pod has ended, or before
// the pod's final status is stored.
func TestEvictedSurvives(t *testing.T) {
	for name, state := range map[string]plan.State{"while it runs": plan.Running, "once it ended": plan.Exited} {
		t.Run(name, func(t *testing.T) {
			w := evicted(t, desired.API)
			w.restart(t, "p")
			if got, _ := w.Get("p"); got.End == nil || *got.End != memory {
				t.Fatalf("%+v", got.End)
			}
			if w.Evict(t.Context(), "p", memory) || len(w.Active()) > 0 {
				t.Error("evicted twice")
			}
			w.showState(t, "p", state)
			w.showState(t, "p", plan.Exited)
			w.checkEvicted(t)
			w.restart(t, "p")
			if got, _ := w.Get("p"); got.End == nil || got.End.Phase != v1.PodFailed {
				t.Errorf("%+v", got.End)
			}
			w.showState(t, "p", plan.Exited)
			w.checkEvicted(t)
		})
	}
}

// TestEvictedComesBack checks that an evicted static pod runs again when the node permits it. Its status then has no trace of the eviction.
// An evicted pod of the API server does not run again.
func TestEvictedComesBack(t *testing.T) {
	w := evicted(t, desired.File)
	w.barred = true
	w.showState(t, "p", plan.Exited)
	w.checkEvicted(t)
	w.NodeChanged()
	w.checkDecision(t, "p", "Evicted")
	w.barred = false
	w.NodeChanged()
	w.checkDecision(t, "p", "Evicted?")
	w.admit(t, "p", "admitted")
	w.showState(t, "p", plan.Running)
	if s := w.Status("p"); s.Phase != v1.PodRunning || s.Reason != "" || disrupted(s) {
		t.Errorf("the status of the next run is %+v", s)
	}
	w.restart(t, "p")
	w.checkDecision(t, "p", "admitted")
	api := evicted(t, desired.API)
	api.showState(t, "p", plan.Exited)
	api.NodeChanged()
	api.checkDecision(t, "p", "Evicted")
}

// TestEvictsOnAFullDisk checks that a pod is evicted although the store is not writable. The eviction is stored when there is space again.
func TestEvictsOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("p", "1", 0))
	w.admit(t, "p", "admitted")
	w.showState(t, "p", plan.Running)
	w.broken = true
	if !w.Evict(t.Context(), "p", memory) {
		t.Fatal("not evicted")
	}
	w.broken = false
	w.showState(t, "p", plan.Exited)
	w.checkEvicted(t)
	w.barred = true
	w.restart(t)
	w.checkDecision(t, "p", "Evicted")
}

// TestEvictsWhatRuns checks that only a running pod is evicted. Pods that are undecided, rejected, finished or deleted are not evicted.
func TestEvictsWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, aPod("new", "1", 0), aPod("refused", "9", 0), aPod("over", "1", 0))
	w.admit(t, "refused", "OutOfcpu")
	w.admit(t, "over", "admitted")
	pod, _ := w.desired.Get("over")
	pod.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	w.showState(t, "over", plan.Exited)
	for _, name := range []string{"new", "refused", "over", "gone"} {
		if w.Evict(t.Context(), aPod(name, "1", 0).UID, memory) {
			t.Errorf("%s is evicted", name)
		}
	}
	if n := len(w.Active()); n > 0 {
		t.Errorf("%d are active", n)
	}
	w.restart(t, "over")
	w.checkDecision(t, "refused", "OutOfcpu")
}

// TestActiveIsAllocated checks that an eviction sees the resources that the node has allocated to a pod, and not those of a deferred or
// infeasible resize, also after a restart of the agent. A granted resize counts at once.
func TestActiveIsAllocated(t *testing.T) {
	w := newWorld(t)
	check := func(want string) {
		t.Helper()
		for _, p := range w.Active() {
			if got := p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; p.Name == "a" && got.String() != want {
				t.Errorf("the request is %v, not %s", &got, want)
			}
			if p.Status.Phase == "" {
				t.Errorf("pod %s has no status", p.Name)
			}
		}
	}
	w.made = map[types.UID]*v1.Pod{"a": generation(1, "a", "1")}
	w.setPods(t, desired.API, w.made["a"], generation(1, "b", "2"))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "admitted")
	w.sync(t, false, "a", "b")
	check("1")
	for n, cpu := range []string{"3", "100"} { // deferred, infeasible
		w.setPods(t, desired.API, generation(int64(2+n), "a", cpu), generation(1, "b", "2"))
		check("1")
		w.sync(t, false, "a", "b")
		check("1")
		w.restart(t, "a", "b")
		w.sync(t, false, "a", "b")
		check("1")
	}
	w.setPods(t, desired.API, generation(4, "a", "2"), generation(1, "b", "2"))
	w.sync(t, true, "a")
	check("2")
}

// A changing is a list of pods that changes after each read, if the lock of Pods permits this.
type changing struct {
	*desired.Desired
	w      *world
	change func()
}

func (c changing) changeUnlessLocked() {
	if c.w.Pods.mu.TryLock() {
		c.w.Pods.mu.Unlock()
		c.change()
	}
}

func (c changing) List() []desired.Pod {
	defer c.changeUnlessLocked()
	return c.Desired.List()
}

func (c changing) Get(uid types.UID) (desired.Pod, bool) {
	defer c.changeUnlessLocked()
	return c.Desired.Get(uid)
}

// TestReadKeepsNewest checks that a reader never replaces the version of a pod that the pod's worker already uses by an older one.
func TestReadKeepsNewest(t *testing.T) {
	for name, read := range map[string]func(w *world){
		"Active": func(w *world) { w.Active() },
		"Get":    func(w *world) { w.Get("a") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPods(t, desired.API, generation(1, "a", "1"))
			w.admit(t, "a", "admitted")
			w.c.Desired = changing{w.desired, w, func() {
				w.c.Desired = w.desired
				w.setPods(t, desired.API, generation(2, "a", "2"))
				w.Get("a")
			}}
			read(w)
			w.c.Desired = w.desired
			if newest, _ := w.desired.Get("a"); w.verdicts["a"].alloc.madeFrom != newest.Pod {
				t.Error("an older version is used")
			}
		})
	}
}
