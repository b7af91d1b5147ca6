package worker

import (
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// This helper returns the newest container of the pod "a".
func (n *node) current(t *testing.T) plan.Container {
	t.Helper()
	c, ok := n.set.Input("a").Observed.Newest("c")
	if !ok {
		t.Fatal("no container exists")
	}
	return c
}

// TestRestartAsked checks that an operator's restart request is executed without a back-off. It does not count as a crash.
func TestRestartAsked(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:1")})
		checkRunning(t, n, "a/c#0")
		for i := range 4 {
			c := n.current(t)
			n.set.Restart("a", "c", plan.Restart{ID: c.ID, Grace: 3 * time.Second})
			time.Sleep(3*time.Second - time.Millisecond)
			if now := n.current(t); now.ID != c.ID || now.State != plan.Running {
				t.Errorf("restart %d: during its grace period: %+v", i, now)
			}
			time.Sleep(2 * time.Millisecond)
			if now := n.current(t); int(now.Attempt) != i+1 || now.State != plan.Running || now.Streak != 0 {
				t.Errorf("restart %d: %+v", i, now)
			}
		}
		// A restart request for a former attempt has no effect.
		time.Sleep(time.Minute)
		c := n.current(t)
		n.End(c.ID, 1)
		time.Sleep(time.Second)
		if now := n.current(t); now.Attempt != 5 || now.Streak != 1 {
			t.Errorf("after the first crash: %+v", now)
		}
		// The container waits for its back-off until an operator requests a restart.
		n.End(n.current(t).ID, 1)
		time.Sleep(5 * time.Second)
		if now := n.current(t); now.Attempt != 5 || now.State != plan.Exited {
			t.Errorf("after the second crash: %+v", now)
		}
		n.set.Restart("a", "c", plan.Restart{ID: n.current(t).ID})
		time.Sleep(time.Millisecond)
		if now := n.current(t); now.Attempt != 6 || now.State != plan.Running || now.Streak != 0 {
			t.Errorf("after a request during the back-off: %+v", now)
		}
		n.set.Restart("nobody", "c", plan.Restart{ID: "x"})
		n.set.Restart("a", "c", plan.Restart{ID: "x"})
		time.Sleep(time.Hour)
		if now := n.current(t); now.Attempt != 6 || now.State != plan.Running {
			t.Errorf("after a request for another container: %+v", now)
		}
		if r, err := n.ListContainers(t.Context(), &api.ListContainersRequest{}); err != nil || len(r.Containers) > 2 {
			t.Errorf("%d containers, %v", len(r.Containers), err)
		}
	})
}
