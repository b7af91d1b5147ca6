package worker

import (
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestGivenUp checks that a container is stopped within the probe's grace period after its liveness probe has failed. It is then restarted
// unless its policy is Never, even if it has exited with code 0.
func TestGivenUp(t *testing.T) {
	for _, tt := range []struct {
		policy v1.RestartPolicy
		polite bool
		want   []string
	}{
		{v1.RestartPolicyAlways, true, []string{"a/c#1"}},
		{v1.RestartPolicyOnFailure, true, []string{"a/c#1"}},
		{v1.RestartPolicyOnFailure, false, []string{"a/c#1"}},
		{v1.RestartPolicyNever, true, nil},
	} {
		m := newMachine("app:1")
		m.polite = tt.polite
		bubble(t, m, func(t *testing.T, n *node) {
			var ill atomic.Bool
			n.stop()
			n.health = func(_ *v1.Pod, seen plan.Observed) map[string]plan.Health {
				out := map[string]plan.Health{}
				for _, c := range seen.Containers {
					out[c.ID] = plan.Health{Started: true, Ready: true, Unhealthy: c.Attempt == 0 && ill.Load()}
				}
				return out
			}
			n.start(t)
			p := otherPod(tt.policy, "app:1")
			p.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(2))}
			n.setWish("a", Wanted{Pod: p})
			checkRunning(t, n, "a/c#0")
			ill.Store(true)
			n.set.Poke("a")
			if !tt.polite {
				time.Sleep(1900 * time.Millisecond)
				checkRunning(t, n, "a/c#0")
			}
			time.Sleep(2 * time.Second) // shorter than the pod's grace period
			checkRunning(t, n, tt.want...)
		})
	}
}
