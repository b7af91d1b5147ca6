package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// This helper makes the pod's containers exit with the given code.
func (n *node) end(t *testing.T, code int32) {
	t.Helper()
	r, err := n.ListContainers(t.Context(), &api.ListContainersRequest{})
	if err != nil || len(r.Containers) == 0 {
		t.Fatal(r, err)
	}
	for _, c := range r.Containers {
		n.End(c.Id, code)
	}
}

// TestEndedStaysEnded checks that a finished pod stays finished after a restart of the agent or a reboot. As with a kubelet, a container
// that a power cut ended runs again if its restart policy permits it.
func TestEndedStaysEnded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int32 // -1: the container does not exit by itself
		reboot bool
		again  bool
	}{
		{"success, restart", "Never", 0, false, false},
		{"failure, restart", "Never", 1, false, false},
		{"success, reboot", "Never", 0, true, false},
		{"failure, reboot", "Never", 1, true, false},
		{"power cut, never again", "Never", -1, true, false},
		{"done, restart", "OnFailure", 0, false, false},
		{"done, reboot", "OnFailure", 0, true, false},
		{"power cut, again", "OnFailure", -1, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
				n.setWish("a", Wanted{Pod: otherPod(tt.policy, "app:1")})
				checkRunning(t, n, "a/c#0")
				if tt.code >= 0 {
					n.end(t, tt.code)
				}
				time.Sleep(time.Minute)
				n.stop()
				if tt.reboot {
					n.Reboot()
				}
				n.start(t)
				time.Sleep(time.Hour)
				if tt.again {
					checkRunning(t, n, "a/c#1")
				} else if checkRunning(t, n); !plan.IsFinished(n.set.Input("a")) {
					t.Error("the pod has not finished")
				}
			})
		})
	}
}

// TestVerdictIsFinal checks that a pod with a stored end does not run, even if the runtime has none of its containers. The pod is removed
// when it is deleted.
func TestVerdictIsFinal(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		end := &plan.End{Phase: v1.PodSucceeded}
		n.setWish("a", Wanted{Pod: pod("a", ""), End: end})
		time.Sleep(time.Hour)
		if n.countLeft(t) > 0 {
			t.Error("a container runs")
		}
		n.setWish("a", Wanted{Pod: pod("a", ""), End: end, Deleting: true})
		if _, known := n.Get("a"); known {
			t.Error("not forgotten")
		}
	})
}

// TestDeadline checks that activeDeadlineSeconds counts from the pod's first start and continues over restarts of the agent. The field may
// be set while the pod runs.
func TestDeadline(t *testing.T) {
	limited := func(seconds int64) *v1.Pod {
		p := otherPod("Always", "app:1")
		p.Spec.ActiveDeadlineSeconds = &seconds
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // a bubble starts in the year 2000; islet considers such a clock unset
		n := newNode(t, newMachine("app:1"))
		n.start(t)
		defer func() { n.stop() }()
		n.setWish("a", Wanted{Pod: otherPod("Always", "app:1")})
		time.Sleep(time.Minute)
		n.setWish("a", Wanted{Pod: limited(600)})
		time.Sleep(time.Minute)
		n.stop()
		n.start(t)
		time.Sleep(479 * time.Second)
		checkRunning(t, n, "a/c#0")
		time.Sleep(7 * time.Second) // the grace period is five seconds
		checkRunning(t, n)
		n.stop()
		n.start(t)
		time.Sleep(time.Hour)
		if checkRunning(t, n); !plan.DeadlineExpired(n.set.Input("a")) {
			t.Error("the deadline has not expired")
		}
	})
}

// A releaser is a hook that counts its calls and fails at first.
type releaser struct {
	calls    atomic.Int32
	failures int32
}

func (*releaser) Name() string { return "releaser" }

func (r *releaser) Release(context.Context, types.UID) error {
	if r.calls.Add(1) <= r.failures {
		return errors.New("its driver is gone")
	}
	return nil
}

// TestNothingButResources checks a pod that no source wants and that has no containers, but still has resources. After RetryPod,
// its worker calls Release until the call succeeds, and then ends.
func TestNothingButResources(t *testing.T) {
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		r := &releaser{failures: 2}
		n.stop()
		n.hooks = hook.Chain{r}
		n.start(t)
		n.set.RetryPod("stray")
		synctest.Wait()
		if r.calls.Load() != 1 || len(n.set.listWorkers()) != 1 {
			t.Errorf("%d calls, %d workers", r.calls.Load(), len(n.set.listWorkers()))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.calls.Load() != 3 || len(n.set.listWorkers()) != 0 {
			t.Errorf("%d calls, %d workers", r.calls.Load(), len(n.set.listWorkers()))
		}
	})
}
