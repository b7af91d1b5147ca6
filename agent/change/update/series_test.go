package update

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/rollout"
	"github.com/islet-edge/islet/internal/seriestest"
)

// TestAlertSeries records the metric of two nodes that follow an index, for the test of the alerts. One of them refuses a version after its
// trial has failed.
func TestAlertSeries(t *testing.T) {
	for name, second := range map[string]rollout.State{"rollout": rollout.Installed, "rollout-refused": rollout.Refused} {
		u, r := &Updater{}, seriestest.New(name)
		r.Scrape(t, 0, "no index was read", u.Collectors()...)
		for i, step := range []struct {
			version string
			state   rollout.State
		}{{"0.2.0", rollout.Due}, {"0.2.0", second}, {"0.2.1", rollout.Waiting}, {"0.2.1", rollout.Installed}} {
			u.status.Offered, u.status.Ring, u.status.State = step.version, "lab", string(step.state)
			r.Scrape(t, time.Duration(i+1)*time.Hour, step.version+" is "+string(step.state), u.Collectors()...)
		}
		r.Compare(t)
	}
}
