package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// When the machine goes off a pod ends within the time that it has, at rest it stays, over
// a restart of the agent too, and the boot starts it again, unless it may not run twice.
func TestMachineGoesOff(t *testing.T) {
	for _, tt := range []struct {
		policy v1.RestartPolicy
		polite bool
		again  []string // runs after the boot
	}{
		{"Always", false, []string{"a/c#1"}},
		{"Always", true, []string{"a/c#1"}},
		{"OnFailure", false, []string{"a/c#1"}},
		{"OnFailure", true, []string{"a/c#0"}}, // that run does not count
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
				n.stop() // kill -9 meanwhile
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

// A machine that stays up after all runs its pods again.
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
