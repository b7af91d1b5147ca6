package worker

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// offNode starts a node. The returned function starts a shutdown of the node's machine if its argument is true, and cancels it otherwise.
func offNode(t *testing.T, n *node) (shutdown func(bool)) {
	var since atomic.Pointer[time.Time]
	since.Store(&time.Time{})
	n.off = func(*v1.Pod) (time.Time, time.Duration) { return *since.Load(), 3 * time.Second }
	n.stop()
	n.start(t)
	return func(off bool) {
		began := time.Time{}
		if off {
			began = time.Now()
		}
		since.Store(&began)
		n.set.Poke("a")
	}
}

// TestMachineGoesOffEarly checks a shutdown during which the machine goes off when only one of two containers has exited. This container
// exited with 0 on SIGTERM, and must not count as completed.
func TestMachineGoesOffEarly(t *testing.T) {
	for policy, again := range map[v1.RestartPolicy][]string{
		v1.RestartPolicyAlways: {"a/c#1", "a/d#1"}, v1.RestartPolicyOnFailure: {"a/c#1", "a/d#1"}, v1.RestartPolicyNever: nil,
	} {
		m := newMachine("app:1")
		m.manners = map[string]time.Duration{"c": time.Second}
		bubble(t, m, func(t *testing.T, n *node) {
			shutdown := offNode(t, n)
			p := otherPod(policy, "app:1")
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			p.Spec.Containers[1].Name = "d"
			n.setWish("a", Wanted{Pod: p})
			checkRunning(t, n, "a/c#0", "a/d#0")
			shutdown(true)
			time.Sleep(2 * time.Second)
			checkRunning(t, n, "a/d#0")
			n.stop()
			n.off = nil
			n.Reboot()
			n.start(t)
			time.Sleep(time.Minute)
			checkRunning(t, n, again...)
			in := n.set.Input("a")
			if c, _ := in.Observed.Newest("c"); policy == v1.RestartPolicyNever && (!plan.IsFinished(in) || plan.Completed(in, c)) {
				t.Errorf("finished %v, completed %v", plan.IsFinished(in), plan.Completed(in, c))
			}
		})
	}
}

// TestShutdownCancelled checks that a pod runs again after a shutdown that is cancelled while its container stops.
func TestShutdownCancelled(t *testing.T) {
	m := newMachine("app:1")
	m.manners = map[string]time.Duration{"c": 2 * time.Second}
	bubble(t, m, func(t *testing.T, n *node) {
		shutdown := offNode(t, n)
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:1")})
		shutdown(true)
		time.Sleep(time.Second)
		shutdown(false)
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1")
	})
}

// TestShutdownAfterReplacement checks that the exit code of a container that was replaced earlier does not affect the pod's phase, and that
// a container is stopped although the disk is full.
func TestShutdownAfterReplacement(t *testing.T) {
	m := newMachine("app:1", "app:2")
	m.polite = true
	bubble(t, m, func(t *testing.T, n *node) {
		shutdown := offNode(t, n)
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:1")})
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:2")})
		checkRunning(t, n, "a/c#1")
		shutdown(true)
		checkRunning(t, n)
		if in := n.set.Input("a"); plan.IsFinished(in) || !plan.AtRest(in) {
			t.Errorf("finished: %v, at rest: %v", plan.IsFinished(in), plan.AtRest(in))
		}
		n.stop()
		n.off = nil
		n.Reboot()
		n.start(t)
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#2")
		n.marks.mu.Lock()
		n.marks.full = true
		n.marks.mu.Unlock()
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:1")})
		checkRunning(t, n, "a/c#3")
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:1"), Deleting: true})
		time.Sleep(time.Minute)
		n.marks.mu.Lock()
		defer n.marks.mu.Unlock()
		if len(n.marks.interrupted)+len(n.marks.stored) > 0 {
			t.Errorf("marks of removed containers: %v, %v", n.marks.interrupted, n.marks.stored)
		}
	})
}

// TestAgentEndsDuringReplacement checks that a container which is stopped in order to be restarted is restarted even if the agent restarts
// before the container has exited.
func TestAgentEndsDuringReplacement(t *testing.T) {
	resized := func(policy v1.RestartPolicy, m int64) *v1.Pod {
		p := sizedPod(m)
		p.Spec.RestartPolicy = policy
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
		return p
	}
	for name, tt := range map[string]struct {
		before, after *v1.Pod
		unhealthy     bool
	}{
		"resize":              {resized("Never", 10), resized("Never", 20), false},
		"resize of OnFailure": {resized("OnFailure", 10), resized("OnFailure", 20), false},
		"image":               {otherPod("Never", "app:1"), otherPod("Never", "app:2"), false},
		"probe":               {otherPod("OnFailure", "app:1"), otherPod("OnFailure", "app:1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("app:1", "app:2")
			m.manners = map[string]time.Duration{"c": 900 * time.Millisecond}
			bubble(t, m, func(t *testing.T, n *node) {
				n.setWish("a", Wanted{Pod: tt.before})
				checkRunning(t, n, "a/c#0")
				if tt.unhealthy {
					id := n.current(t).ID
					n.stop()
					n.health = func(*v1.Pod, plan.Observed) map[string]plan.Health {
						return map[string]plan.Health{id: {Started: true, Unhealthy: true}}
					}
					n.start(t)
				}
				n.setWish("a", Wanted{Pod: tt.after})
				time.Sleep(500 * time.Millisecond)
				checkRunning(t, n, "a/c#0")
				n.stop()
				n.health = nil
				time.Sleep(time.Second)
				checkRunning(t, n)
				n.start(t)
				time.Sleep(time.Minute)
				checkRunning(t, n, "a/c#1")
			})
		})
	}
}

// TestPreempted checks that the containers of a preempted pod are restarted when the pod is admitted again, with every restart policy. A
// container that had completed before the preemption is not restarted.
func TestPreempted(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, polite := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, polite), func(t *testing.T) {
				m := newMachine("app:1")
				m.polite = polite
				bubble(t, m, func(t *testing.T, n *node) {
					p := otherPod(policy, "app:1")
					p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
					p.Spec.Containers[1].Name = "d"
					n.setWish("a", Wanted{Pod: p})
					checkRunning(t, n, "a/c#0", "a/d#0")
					d, _ := n.set.Input("a").Observed.Newest("d")
					if policy != v1.RestartPolicyAlways {
						n.End(d.ID, 0)
						checkRunning(t, n, "a/c#0")
					}
					n.setWish("a", Wanted{Pod: p, End: &plan.End{Reason: plan.Preempting}})
					time.Sleep(time.Minute)
					checkRunning(t, n)
					n.stop()
					n.start(t)
					n.setWish("a", Wanted{Pod: p})
					time.Sleep(time.Minute)
					want := []string{"a/c#1", "a/d#1"}
					if policy != v1.RestartPolicyAlways {
						want = want[:1]
					}
					checkRunning(t, n, want...)
				})
			})
		}
	}
}

// TestEndsDuringHook checks that a container which exits with 0 during a sleep hook counts as completed. A container that exits with 0
// during another preStop hook does not, because the hook may have stopped the program.
func TestEndsDuringHook(t *testing.T) {
	for name, tt := range map[string]struct {
		hook *v1.LifecycleHandler
		want []string
	}{"sleep": {takes(3), nil}, "command": {fails(3), []string{"a/c#1"}}} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("app:1")
			bubble(t, m, func(t *testing.T, n *node) {
				shutdown := offNode(t, n)
				p := otherPod(v1.RestartPolicyOnFailure, "app:1")
				p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: tt.hook}
				n.setWish("a", Wanted{Pod: p})
				checkRunning(t, n, "a/c#0")
				shutdown(true)
				time.Sleep(time.Second)
				n.End(n.current(t).ID, 0)
				time.Sleep(time.Second)
				shutdown(false)
				time.Sleep(time.Minute)
				checkRunning(t, n, tt.want...)
			})
		})
	}
}

// TestReasonGoneDuringHook checks that a container is restarted if the reason for its stop disappears while its preStop hook runs.
func TestReasonGoneDuringHook(t *testing.T) {
	m := newMachine("app:1")
	m.manners = map[string]time.Duration{"c": time.Second / 2}
	bubble(t, m, func(t *testing.T, n *node) {
		shutdown := offNode(t, n)
		p := otherPod(v1.RestartPolicyOnFailure, "app:1")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: takes(2)}
		n.setWish("a", Wanted{Pod: p})
		checkRunning(t, n, "a/c#0")
		shutdown(true)
		time.Sleep(time.Second)
		shutdown(false)
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1")
	})
}

// TestChangeRevertedDuringSleep checks a container with restartPolicy Never that is stopped because of a new image. The image is changed
// back during the container's sleep hook. The container must be restarted after the stop.
func TestChangeRevertedDuringSleep(t *testing.T) {
	m := newMachine("app:1", "app:2")
	bubble(t, m, func(t *testing.T, n *node) {
		wish := func(image string) {
			p := otherPod(v1.RestartPolicyNever, image)
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: takes(4)}
			n.setWish("a", Wanted{Pod: p})
		}
		wish("app:1")
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#0")
		wish("app:2")
		time.Sleep(time.Second)
		wish("app:1")
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1")
	})
}

// TestAgentEndsBeforeStop checks that the next agent stops a container that is recorded as interrupted, if the former agent ended before
// the stop. Otherwise the container would run twice when it completes later.
func TestAgentEndsBeforeStop(t *testing.T) {
	m := newMachine("app:1")
	m.polite = true
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: otherPod(v1.RestartPolicyOnFailure, "app:1")})
		checkRunning(t, n, "a/c#0")
		id := n.current(t).ID
		n.stop()
		if err := n.marks.MarkInterrupted(t.Context(), id, plan.Replaced, true); err != nil {
			t.Fatal(err)
		}
		n.start(t)
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1")
		n.End(n.current(t).ID, 0)
		time.Sleep(time.Minute)
		checkRunning(t, n)
	})
}
