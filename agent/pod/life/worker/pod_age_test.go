package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/clock"
)

// TestAge checks that a pod with a running sandbox is at most as old as the machine's uptime. Otherwise a clock that was set while the
// agent was stopped could end the pod by activeDeadlineSeconds.
func TestAge(t *testing.T) {
	now, up := time.Now(), 3*time.Hour
	for name, c := range map[string]struct {
		started time.Time
		ready   bool
		want    time.Duration
	}{
		"unchanged clock":                                          {now.Add(-time.Hour), true, time.Hour},
		"the clock was set 5 years ahead":                          {now.AddDate(-5, 0, 0), true, up},
		"the clock was set back":                                   {now.AddDate(1, 0, 0), true, 0},
		"from before a reboot":                                     {now.Add(-5 * time.Hour), false, 5 * time.Hour},
		"started before the clock was set":                         {time.Unix(100, 0), true, 0},
		"from before a reboot, with a clock that was years behind": {now.AddDate(-5, 0, 0), false, 0},
	} {
		in := plan.Input{Now: now}
		in.Observed.Sandboxes = []plan.Sandbox{{Ready: c.ready, Started: c.started}}
		if got := podAge(in, up).Round(time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for name, c := range map[string]struct{ started, want time.Duration }{
		"status":                               {-30 * time.Hour, 30 * time.Hour}, // also before the machine's boot
		"status, and the clock was set back":   {time.Hour, 0},
		"status from before the clock was set": {-20 * 365 * 24 * time.Hour, 0},
	} {
		if got := podAge(plan.Input{Now: now, Started: now.Add(c.started)}, up).Round(time.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	in := plan.Input{Now: now, Started: now.Add(-30 * time.Hour)}
	in.Observed.Sandboxes = []plan.Sandbox{{Ready: true, Started: now.Add(-time.Hour)}}
	if got := podAge(in, up).Round(time.Minute); got != time.Hour {
		t.Errorf("sandbox and status: %s", got)
	}
	if systemUptime() <= 0 {
		t.Error("the machine is not up")
	}
}

// TestAgeWithoutSandbox checks that the deadline of a pod that cannot get a sandbox counts from the start time in its stored status,
// also if the agent restarts more often than the deadline.
func TestAgeWithoutSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.EarliestTime().AddDate(1, 0, 0)))
		m := newMachine("app:1")
		m.runFail = func() error { return errors.New("the volume cannot be mounted") }
		n := newNode(t, m)
		n.start(t)
		defer func() { n.stop() }()
		began, p := metav1.Now(), pod("a", "")
		p.Spec.ActiveDeadlineSeconds = new(int64(100))
		n.setWish("a", Wanted{Pod: p})
		for i := range 5 {
			time.Sleep(30 * time.Second)
			if isOver := i > 2; plan.DeadlineExpired(n.set.Input(p.UID)) != isOver {
				t.Errorf("the pod has started %s ago, and its deadline is over: %t", time.Since(n.set.Input(p.UID).Started), !isOver)
			}
			n.stop()
			n.wishes.pods["a"] = Wanted{Pod: p, Started: &began}
			n.start(t)
			synctest.Wait()
		}
	})
}
