package pods

import (
	"context"
	"errors"
	"fmt"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
)

// This helper makes the pod critical, so that other pods are preempted for it.
func critical(p *v1.Pod) *v1.Pod {
	p.Annotations = map[string]string{keys.ConfigSource: keys.SourceFile}
	return p
}

// showState sets the state of the pod's container. The pod's worker would observe this state.
func (w *world) showState(t *testing.T, uid types.UID, state plan.State) {
	t.Helper()
	got, ok := w.Get(uid)
	if !ok {
		t.Fatalf("%s is not wanted", uid)
	}
	w.mu.Lock()
	w.inputs[uid] = plan.Input{UID: uid, Want: got.Pod, Admitted: got.Admitted, End: got.End, Now: time.Now(),
		Observed: plan.Observed{Containers: []plan.Container{{ID: "1", Name: "c", State: state, ExitCode: 137}}}}
	w.mu.Unlock()
	w.refreshStatus(uid)
}

// This helper starts the admission of a pod and returns a channel for the result.
func (w *world) asks(ctx context.Context, uid types.UID) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.Admit(ctx, uid) }()
	return answer
}

// startFullNode returns a node with a running pod of the API server and a critical pod. The critical pod waits for the resources of the
// running pod.
func startFullNode(t *testing.T, victim *v1.Pod) (*world, <-chan error) {
	w := newWorld(t)
	w.setPods(t, desired.API, victim)
	w.admit(t, victim.UID, "admitted")
	w.showState(t, victim.UID, plan.Running)
	w.setPods(t, desired.File, critical(aPod("critical", "2", 0)))
	w.events = nil
	return w, w.asks(t.Context(), "critical")
}

func (w *world) phase(uid types.UID) v1.PodPhase { s := w.Status(uid); return s.Phase }

// TestPreempts checks that a critical pod is admitted when the preempted pod has ended. No other pod gets the resources meanwhile.
func TestPreempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, answer := startFullNode(t, aPod("victim", "3", 0))
		synctest.Wait()
		w.checkDecision(t, "victim", "Preempting")
		w.checkDecision(t, "critical", "")
		w.checkEvents(t, "Warning victim Preempting")
		if w.poked["victim"] == 0 || len(w.preempted) != 1 || w.preempted[0] != "cpu" {
			t.Errorf("poked %v, counted %q", w.poked, w.preempted)
		}
		w.setPods(t, desired.API, aPod("victim", "3", 0), aPod("thief", "2", 0))
		w.admit(t, "thief", "OutOfcpu")
		w.showState(t, "victim", plan.Running)
		synctest.Wait()
		w.checkDecision(t, "critical", "")
		if s := w.Status("victim"); s.Phase == v1.PodFailed || s.Reason != "" || !disrupted(s) {
			t.Errorf("while the pod ends: %+v", s)
		}
		w.showState(t, "victim", plan.Exited)
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		w.checkDecision(t, "critical", "admitted")
		s := w.Status("victim")
		if s.Phase != v1.PodFailed || s.Reason != "Preempting" || s.Message != "Preempted in order to admit critical pod" || !disrupted(s) {
			t.Errorf("%+v", s)
		}
	})
}

func disrupted(s v1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
	})
}

// TestPreemptedComesBack checks that a preempted static pod runs again when the node has enough resources. Until then, its status contains
// the reason.
func TestPreemptedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		low, high := critical(aPod("low", "3", 0)), critical(aPod("high", "2", 0))
		low.Spec.Priority, high.Spec.Priority = new(int32(1)), new(int32(2))
		w.setPods(t, desired.File, low)
		w.admit(t, "low", "admitted")
		w.showState(t, "low", plan.Running)
		w.setPods(t, desired.File, low, high)
		answer := w.asks(t.Context(), "high")
		synctest.Wait()
		w.showState(t, "low", plan.Exited)
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		w.checkEvents(t, "Warning low Preempting")
		w.checkDecision(t, "low", "Preempting?")
		w.admit(t, "low", "Preempting")
		w.checkEvents(t) // no further event
		w.setPods(t, desired.File, low)
		if err := w.Forget(t.Context(), "high"); err != nil {
			t.Fatal(err)
		}
		w.admit(t, "low", "admitted")
		w.setPods(t, desired.File, low, aPod("late", "2", 0))
		w.admit(t, "late", "OutOfcpu") // this pod is rejected although the status of low still shows its former end
		w.showState(t, "low", plan.Running)
		if s := w.Status("low"); s.Phase != v1.PodRunning || disrupted(s) {
			t.Errorf("%+v", s)
		}
	})
}

// TestKilledWhilePreempting checks that a preemption continues after the agent was killed.
func TestKilledWhilePreempting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPods(t, desired.API, aPod("victim", "3", 0))
		w.admit(t, "victim", "admitted")
		w.showState(t, "victim", plan.Running)
		w.setPods(t, desired.File, critical(aPod("critical", "2", 0)))
		ctx, kill := context.WithCancel(t.Context())
		answer := w.asks(ctx, "critical")
		synctest.Wait()
		kill()
		<-answer
		w.restart(t, "victim")
		w.events = nil
		w.checkDecision(t, "victim", "Preempting")
		w.showState(t, "victim", plan.Running)
		answer = w.asks(t.Context(), "critical")
		synctest.Wait()
		w.checkDecision(t, "critical", "")
		w.showState(t, "victim", plan.Exited)
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		w.checkDecision(t, "critical", "admitted")
		w.checkEvents(t)
	})
}

// TestPreemptsLate checks that a critical pod waits only for a limited time for the end of a preempted pod.
func TestPreemptsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		victim := aPod("victim", "3", 0)
		victim.Spec.TerminationGracePeriodSeconds = new(int64(20))
		w, answer := startFullNode(t, victim)
		begin := time.Now()
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("waited %v", took)
		}
		w.checkDecision(t, "critical", "admitted")
	})
}

// TestPreemptorGoes checks that the resources reserved for a waiting critical pod are released when the pod is deleted.
func TestPreemptorGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setPods(t, desired.API, aPod("victim", "3", 0))
		w.admit(t, "victim", "admitted")
		w.showState(t, "victim", plan.Running)
		w.setPods(t, desired.File, critical(aPod("critical", "2", 0)))
		ctx, stop := context.WithCancel(t.Context())
		answer := w.asks(ctx, "critical")
		synctest.Wait()
		stop()
		if err := <-answer; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		w.checkDecision(t, "critical", "")
		w.showState(t, "victim", plan.Exited)
		w.setPods(t, desired.API, aPod("victim", "3", 0), aPod("next", "4", 0))
		w.admit(t, "next", "admitted")
	})
}

// This helper returns a node on which the pod "victim" is preempted for the critical pod "low". The critical pod "high" has a higher
// priority than "low", and requests the same resources later.
func inTurn(t *testing.T) (w *world, low, high <-chan error, gone context.CancelFunc) {
	t.Helper()
	w = newWorld(t)
	a, b := critical(aPod("low", "2", 0)), critical(aPod("high", "3", 0))
	a.Spec.Priority, b.Spec.Priority = new(int32(1)), new(int32(2))
	w.setPods(t, desired.API, aPod("victim", "3", 0))
	w.admit(t, "victim", "admitted")
	w.showState(t, "victim", plan.Running)
	w.setPods(t, desired.File, a, b)
	low = w.asks(t.Context(), "low")
	synctest.Wait()
	ctx, gone := context.WithCancel(t.Context())
	high = w.asks(ctx, "high")
	synctest.Wait()
	w.checkDecision(t, "low", "")
	w.checkDecision(t, "high", "") // high is not rejected, because low would be preempted for it
	return w, low, high, gone
}

// TestTwoCritical checks two critical pods that wait for the same resources. The first pod gets them. If the second pod has a higher
// priority, the first pod is then preempted for it.
func TestTwoCritical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, low, high, _ := inTurn(t)
		w.showState(t, "victim", plan.Exited)
		if err := <-low; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.checkDecision(t, "low", "Preempting")
		w.checkDecision(t, "high", "")
		w.checkEvents(t, "Warning victim Preempting", "Warning low Preempting")
		w.showState(t, "low", plan.Exited)
		if err := <-high; err != nil {
			t.Fatal(err)
		}
		w.checkDecision(t, "high", "admitted")
		w.admit(t, "low", "Preempting") // low runs again when the node has enough resources
		w.checkEvents(t)
	})
}

// TestFirstCriticalGoes checks that a waiting critical pod does not wait for another critical pod that was deleted.
func TestFirstCriticalGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, low, high, gone := inTurn(t)
		gone()
		if err := <-high; !errors.Is(err, context.Canceled) {
			t.Errorf("a pod that is deleted while it waits: %v", err)
		}
		high = w.asks(t.Context(), "high")
		synctest.Wait()
		w.setPods(t, desired.File, critical(aPod("high", "3", 0)))
		if err := w.Drop(t.Context(), "low"); err != nil {
			t.Fatal(err)
		}
		w.showState(t, "victim", plan.Exited)
		if err := <-low; err != nil {
			t.Error(err)
		}
		if err := <-high; err != nil {
			t.Fatal(err)
		}
		w.checkDecision(t, "high", "admitted")
	})
}

// TestPortsDoNotPreempt checks that a conflict of ports does not cause a preemption. Only a lack of resources does.
func TestPortsDoNotPreempt(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, aPod("holder", "1", 80))
	w.admit(t, "holder", "admitted")
	w.setPods(t, desired.File, critical(aPod("critical", "4", 80)))
	w.admit(t, "critical", "NodePorts")
	w.checkDecision(t, "holder", "admitted")
}

// TestPreemptsOnceStored checks that no pod is preempted for a decision that could not be stored.
func TestPreemptsOnceStored(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, aPod("victim", "3", 0))
	w.admit(t, "victim", "admitted")
	w.setPods(t, desired.File, critical(aPod("critical", "2", 0)))
	w.broken = true
	if err := w.Admit(t.Context(), "critical"); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	w.checkDecision(t, "victim", "admitted")
	w.checkDecision(t, "critical", "")
	w.checkEvents(t)
}

// TestManyPreempt lets pods request admission and end in random order. The node must never be overcommitted, and each request for admission
// must be answered. A critical pod must not be rejected if the preemption of one running pod would suffice.
func TestManyPreempt(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			w := newWorld(t)
			byUID := map[types.UID]*v1.Pod{}
			var own, others []*v1.Pod
			for i := range 14 {
				p := aPod(fmt.Sprint("p", i), fmt.Sprint(1+r.IntN(2)), 0)
				p.Spec.Priority = new([]int32{0, 7, 2_000_000_000, 2_000_001_000}[r.IntN(4)])
				byUID[p.UID] = p
				if r.IntN(4) == 0 {
					own = append(own, critical(p))
				} else {
					others = append(others, p)
				}
			}
			w.setPods(t, desired.API, others...)
			w.setPods(t, desired.File, own...)
			answers, asked := 0, slices.Sorted(maps.Keys(byUID))
			r.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
			done := make(chan error, len(asked))
			for len(asked) > 0 || answers < len(byUID) {
				if len(asked) > 0 {
					go func() { done <- w.Admit(t.Context(), asked[0]) }()
					synctest.Wait()
					asked = asked[1:]
				}
				for uid := range byUID {
					switch v := w.verdict(uid); {
					case v == "admitted" && w.phase(uid) != v1.PodRunning:
						w.showState(t, uid, plan.Running)
					case strings.HasPrefix(v, "Preempting") && w.phase(uid) != v1.PodFailed && r.IntN(3) == 0:
						w.showState(t, uid, plan.Exited)
					}
				}
				synctest.Wait()
				w.notOverbooked(t, byUID)
				for len(done) > 0 {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
					answers++
				}
			}
			w.fair(t, byUID)
		})
	}
}

// This helper checks that the resources of the running and admitted pods do not exceed the node's.
func (w *world) notOverbooked(t *testing.T, all map[types.UID]*v1.Pod) {
	t.Helper()
	var used int64
	for uid, p := range all {
		if w.verdict(uid) == "admitted" || w.phase(uid) == v1.PodRunning {
			used += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		}
	}
	if used > 4 {
		t.Fatalf("%d of 4 CPUs are in use", used)
	}
}

// This helper checks that no critical pod was rejected although the preemption of one pod with lower priority would have sufficed.
func (w *world) fair(t *testing.T, all map[types.UID]*v1.Pod) {
	t.Helper()
	cpus := func(p *v1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().Value() }
	for uid, p := range all {
		if !strings.HasPrefix(w.verdict(uid), "OutOf") {
			continue
		}
		for other, o := range all {
			lower := *o.Spec.Priority < *p.Spec.Priority
			if admit.Critical(p) && w.verdict(other) == "admitted" && cpus(o) >= cpus(p) && lower {
				t.Errorf("%s was rejected although %s of lower priority runs", uid, other)
			}
		}
	}
}
