package pods

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/realtime"
)

// TestOnePort checks that exactly one of many pods is admitted if all request the same port at the same time. Reading a pod makes no
// decision about it.
func TestOnePort(t *testing.T) {
	w := newWorld(t)
	var all []*v1.Pod
	for i := range 20 {
		all = append(all, aPod(fmt.Sprint("p", i), "1m", 80))
	}
	w.setPods(t, desired.API, all...)
	w.checkDecision(t, "p0", "")
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			if err := w.Admit(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	admitted := 0
	for _, p := range all {
		switch v := w.verdict(p.UID); v {
		case "admitted":
			admitted++
		case "NodePorts":
		default:
			t.Errorf("%s: %q", p.Name, v)
		}
	}
	if admitted != 1 || len(w.events) != 19 {
		t.Errorf("%d admitted, %d events", admitted, len(w.events))
	}
}

// TestRefusalIsStored checks that a rejection takes effect when it is stored, and that it survives restarts of the agent. Its event is sent
// once.
func TestRefusalIsStored(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, aPod("big", "5", 0))
	w.broken = true
	if err := w.Admit(t.Context(), "big"); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	w.checkDecision(t, "big", "")
	w.checkEvents(t)
	w.broken = false
	w.admit(t, "big", "OutOfcpu")
	w.checkEvents(t, "Warning big OutOfcpu")
	w.restart(t)
	w.cpu = "8"
	w.NodeChanged()
	w.admit(t, "big", "OutOfcpu") // the pod's controller creates another pod
	w.checkEvents(t)
}

// TestWhatRunsWasAdmitted checks that a running pod counts as admitted, even if the node has become too small for it.
func TestWhatRunsWasAdmitted(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "3", 0))
	w.admit(t, "a", "admitted")
	w.cpu = "1"
	w.restart(t, "a")
	w.admit(t, "a", "admitted")
	if w.restart(t); w.verdict("a") != "" { // the runtime has lost the pod's containers
		t.Error("a decision exists before Admit is called")
	}
	w.admit(t, "a", "OutOfcpu")
}

// TestReconsidered checks that the decision about a rejected static pod is repeated when another pod ends or is deleted, or when the node
// changes. A rejected pod of the API server stays rejected.
func TestReconsidered(t *testing.T) {
	for _, tt := range []struct {
		name   string
		happen func(t *testing.T, w *world)
	}{
		{"another one ended", func(t *testing.T, w *world) {
			p := aPod("a", "3", 0)
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			w.inputs["a"] = plan.Input{Want: p, Admitted: true, Now: time.Now(), Observed: plan.Observed{Containers: []plan.Container{{Name: "c", State: plan.Exited}}}}
			w.refreshStatus("a")
		}},
		{"another one was deleted", func(t *testing.T, w *world) {
			w.setPods(t, desired.API)
			if err := w.Forget(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}},
		{"the node changed", func(_ *testing.T, w *world) {
			w.cpu = "8"
			w.NodeChanged()
		}},
		{"the agent restarted with another configuration", func(t *testing.T, w *world) {
			w.cpu = "8"
			w.restart(t, "a")
			w.poked["static"]++ // the agent wakes all workers at its start
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.setPods(t, desired.API, aPod("a", "3", 0), aPod("b", "2", 0))
			w.setPods(t, desired.File, aPod("static", "2", 0))
			w.admit(t, "a", "admitted")
			w.admit(t, "b", "OutOfcpu")
			w.admit(t, "static", "OutOfcpu")
			w.admit(t, "static", "OutOfcpu")
			w.events = nil
			if tt.happen(t, w); w.poked["static"] != 1 || w.poked["b"] > 0 {
				t.Errorf("poked %v", w.poked)
			}
			w.checkDecision(t, "b", "OutOfcpu")
			w.checkDecision(t, "static", "OutOfcpu?")
			w.broken = true
			if err := w.Admit(t.Context(), "static"); !errors.Is(err, errDisk) {
				t.Errorf("got %v", err)
			}
			w.checkDecision(t, "static", "OutOfcpu?")
			w.broken = false
			w.admit(t, "static", "admitted")
			w.checkEvents(t)
			w.restart(t, "static")
			w.checkDecision(t, "static", "admitted")
		})
	}
}

// TestRefusedAgain checks that a second rejection with the same reason is neither stored nor reported by an event. A rejection with another
// reason is stored and reported.
func TestRefusedAgain(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "3", 80), aPod("b", "2", 80))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "NodePorts")
	w.checkEvents(t, "Warning b NodePorts")
	w.NodeChanged()
	w.broken = true // a write to the store would fail
	w.admit(t, "b", "NodePorts")
	w.checkEvents(t)
	w.broken = false
	if err := w.Drop(t.Context(), "a"); err != nil { // the pod is still desired, so the node decides about it again
		t.Fatal(err)
	}
	w.cpu = "1"
	w.admit(t, "b", "OutOfcpu")
	w.checkEvents(t, "Warning b OutOfcpu")
}

// TestRealTime checks that a pod that requests real time is rejected with an event if the configuration allows it to no pod.
func TestRealTime(t *testing.T) {
	w := newWorld(t)
	p := aPod("a", "1", 0)
	p.Annotations = map[string]string{keys.Scheduler + p.Spec.Containers[0].Name: "FIFO priority=1"}
	w.setPods(t, desired.Local, p)
	w.admit(t, "a", realtime.Forbidden)
	w.checkEvents(t, "Warning a "+realtime.Forbidden)
}

// TestUnconfined checks that a pod with SELinux options is rejected with an event if the host has no SELinux.
func TestUnconfined(t *testing.T) {
	w := newWorld(t)
	w.unlabelled = errors.New("SELinux is not enabled on the host")
	p := aPod("a", "1", 80)
	p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: "container_t"}}
	w.setPods(t, desired.File, p)
	w.admit(t, "a", "SELinux")
	w.checkEvents(t, "Warning a SELinux")
}

// TestStrictGroups checks that a pod with supplementalGroupsPolicy: Strict is rejected with a kubelet's event if the runtime ignores that
// policy. Once the runtime supports the policy, a pod of the node is admitted.
func TestStrictGroups(t *testing.T) {
	w := newWorld(t)
	p := aPod("a", "1", 80)
	p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
	w.setPods(t, desired.File, p)
	w.admit(t, "a", "SupplementalGroupsPolicyNotSupported")
	w.checkEvents(t, "Warning a SupplementalGroupsPolicyNotSupported")
	w.strictGroups = true
	w.NodeChanged()
	w.admit(t, "a", "admitted")
}

// TestReservationIsGivenBack checks that a pod's resources are available to other pods if the pod's admission could not be stored.
func TestReservationIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "3", 0), aPod("b", "3", 0), aPod("c", "3", 0))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "OutOfcpu")
	w.setPods(t, desired.File, aPod("b", "3", 0), aPod("c", "3", 0))
	if err := w.Forget(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.broken = true
	if err := w.Admit(t.Context(), "b"); err == nil {
		t.Error("admitted without a store")
	}
	w.admit(t, "c", "admitted")
	w.broken = false
	w.admit(t, "b", "OutOfcpu")
}

// TestUndecidedShowsNothing checks that a pod has no status before its admission is decided. It may still be rejected.
func TestUndecidedShowsNothing(t *testing.T) {
	w := newWorld(t)
	p := aPod("a", "5", 0)
	w.setPods(t, desired.API, p)
	w.inputs["a"] = plan.Input{Want: p, Now: time.Now()}
	w.refreshStatus("a")
	if s, err := w.store.Statuses(t.Context()); err != nil || len(w.states) > 0 || len(s) > 0 {
		t.Errorf("%v, %v, %v", w.states, s, err)
	}
	w.admit(t, "a", "OutOfcpu")
	got, _ := w.Get("a")
	w.inputs["a"] = plan.Input{Want: p, End: got.End, Now: time.Now()}
	w.refreshStatus("a")
	if s := w.List()[0].Status; s.Phase != v1.PodFailed || s.Reason != "OutOfcpu" {
		t.Errorf("%+v", s)
	}
	w.setPods(t, desired.API, p, aPod("b", "1", 0))
	told := map[string]v1.PodPhase{}
	w.ForEach(func(p *v1.Pod, s *v1.PodStatus) { told[p.Name] = s.Phase })
	if want := map[string]v1.PodPhase{"a": v1.PodFailed, "b": v1.PodPending}; !maps.Equal(told, want) {
		t.Errorf("events %v, want %v", told, want)
	}
}

// TestNoVerdictOnAStranger checks that the node makes no decision about a pod that is not desired.
func TestNoVerdictOnAStranger(t *testing.T) {
	w := newWorld(t)
	if err := w.Admit(t.Context(), types.UID("nobody")); err != nil || len(w.verdicts) > 0 {
		t.Errorf("%v, %v", err, w.verdicts)
	}
}
