package worker

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
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
	if systemUptime() <= 0 {
		t.Error("the machine is not up")
	}
}
