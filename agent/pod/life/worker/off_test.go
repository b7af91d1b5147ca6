package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestMachineGoesOff checks that a pod ends within its grace period when the machine shuts down. It does not run again before the boot,
// even after a restart of the agent. After the boot, it runs again unless its restart policy is Never.
func TestMachineGoesOff(t *testing.T) {
	for _, tt := range []struct {
		policy v1.RestartPolicy
		polite bool
		again  []string // containers after the boot
	}{
		{"Always", false, []string{"a/c#1"}},
		{"Always", true, []string{"a/c#1"}},
		{"OnFailure", false, []string{"a/c#1"}},
		{"OnFailure", true, []string{"a/c#1"}},
		{"Never", false, nil},
		{"Never", true, nil},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			m := newMachine("app:1")
			m.polite = tt.polite
			bubble(t, m, func(t *testing.T, n *node) {
				var since time.Time
				n.off = func(*v1.Pod) (time.Time, time.Duration) { return since, 3 * time.Second }
				n.stop()
				n.start(t)
				n.setWish("a", Wanted{Pod: otherPod(tt.policy, "app:1")})
				checkRunning(t, n, "a/c#0")
				time.Sleep(time.Minute)
				since = time.Now()
				n.set.Poke("a")
				checkRunning(t, n, map[bool][]string{false: {"a/c#0"}}[tt.polite]...)
				time.Sleep(time.Second)
				n.stop() // kill -9 during the shutdown
				n.start(t)
				time.Sleep(2*time.Second + time.Millisecond)
				if checkRunning(t, n); !plan.AtRest(n.set.Input("a")) {
					t.Errorf("not at rest: %+v", n.set.Input("a"))
				}
				if in := n.set.Input("a"); plan.IsFinished(in) != (tt.policy == "Never") || in.Want == nil {
					t.Errorf("finished: %v", plan.IsFinished(in))
				}
				time.Sleep(time.Hour)
				checkRunning(t, n)
				n.stop()
				since = time.Time{}
				n.Reboot()
				n.start(t)
				time.Sleep(time.Minute)
				checkRunning(t, n, tt.again...)
			})
		})
	}
}

// TestMachineStaysUp checks that the pods run again after a shutdown was cancelled.
func TestMachineStaysUp(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		var since time.Time
		n.off = func(*v1.Pod) (time.Time, time.Duration) { return since, 3 * time.Second }
		n.stop()
		n.start(t)
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:1")})
		since = time.Now()
		n.set.Poke("a")
		time.Sleep(4 * time.Second)
		checkRunning(t, n)
		since = time.Time{}
		n.set.Poke("a")
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1")
	})
}

// TestUnmountsAtShutdown checks that the volumes of a pod are unmounted when its containers have ended, and that the pod is at rest only
// after that. If the shutdown is cancelled, an unmount that hangs ends, and the pod prepares its volumes again. A pod that was being
// deleted before the shutdown is at rest when its volumes are released.
func TestUnmountsAtShutdown(t *testing.T) {
	stepped(t, func(t *testing.T, n *node, h *steps) {
		var since time.Time
		n.off = func(*v1.Pod) (time.Time, time.Duration) { return since, 3 * time.Second }
		n.stop()
		n.start(t)
		rests := func(uid types.UID) bool { return plan.AtRest(n.set.Input(uid)) }
		shutDown := func(uid types.UID) {
			since = time.Now()
			n.set.Poke(uid)
			time.Sleep(2999 * time.Millisecond)
			h.checkSteps(t)
			time.Sleep(2 * time.Millisecond)
			h.checkSteps(t, "unmount "+string(uid))
		}
		n.setWish("a", Wanted{Pod: pod("a", "")})
		h.checkSteps(t, "prepare a")
		shutDown("a")
		if !rests("a") {
			t.Error("not at rest")
		}
		n.stop()
		n.start(t) // the next agent continues the shutdown, and does not know whether the volumes are unmounted
		h.checkSteps(t, "unmount a")

		h.hang("unmount")
		n.setWish("slow", Wanted{Pod: pod("slow", "")})
		since = time.Time{}
		n.set.Poke("slow")
		n.set.Poke("a")
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#1", "slow/c#0")
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true})
		time.Sleep(time.Minute)
		h.takeSteps()
		shutDown("slow")
		if rests("slow") {
			t.Error("at rest, with mounted volumes")
		}
		since = time.Time{}
		n.set.Poke("slow")
		time.Sleep(time.Minute)
		checkRunning(t, n, "slow/c#1")
		h.hang("release")
		n.setWish("slow", Wanted{Pod: pod("slow", ""), Deleting: true})
		time.Sleep(time.Minute)
		checkRunning(t, n)
		if rests("slow") {
			t.Error("at rest, although the release of its volumes hangs")
		}
		h.hang("")
	})
}
