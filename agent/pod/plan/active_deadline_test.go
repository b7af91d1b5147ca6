package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestDeadlineAndTheClock checks that a pod that ended before its deadline does not fail if the clock is set later. A pod that ended after
// its deadline fails.
func TestDeadlineAndTheClock(t *testing.T) {
	now, limit := time.Now(), int64(3600)
	for name, c := range map[string]struct {
		ran, ago time.Duration // duration of the run, and time since its end according to the clock
		want     bool
	}{
		"in time":                          {30 * time.Minute, time.Hour, false},
		"late":                             {90 * time.Minute, time.Minute, true},
		"in time, the clock went back":     {30 * time.Minute, -365 * 24 * time.Hour, false},
		"in time, the clock went 5y ahead": {30 * time.Minute, 5 * 365 * 24 * time.Hour, false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, ActiveDeadlineSeconds: &limit, Containers: []v1.Container{{Name: "c"}}}}
		in := Input{Want: pod, Now: now, Started: now.Add(-c.ran - max(c.ago, time.Minute))}
		if c.ago > time.Hour {
			in.Started = now.Add(-2 * time.Hour) // a monotonic time, which does not move when the clock is set
		}
		in.Observed.Sandboxes = []Sandbox{{ID: "s"}}
		in.Observed.Containers = []Container{{ID: "x", Name: "c", SandboxID: "s", State: Exited, StartedAt: now.Add(-c.ran - c.ago), FinishedAt: now.Add(-c.ago).Round(0)}}
		if got := DeadlineExpired(in); got != c.want {
			t.Errorf("%s: expired %v", name, got)
		}
	}
}
