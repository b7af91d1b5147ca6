package worker

import (
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/clock"
)

// acceptedAt returns the time at which the node first accepted the pod. After a restart of the agent it is computed from annotations of
// the sandboxes. For a pod without a sandbox, which may wait for a volume or the network, it is computed from the stored status, whose
// start time is in in.Started.
func (w *worker) acceptedAt(in plan.Input) time.Time {
	if w.life.startTime.IsZero() && !in.Waiting {
		w.life.startTime = in.Now
		if !w.ageComputed { // once only, because the clock may be set later
			w.ageComputed = true
			w.life.startTime = in.Now.Add(-podAge(in, w.set.cfg.Uptime()))
		}
	}
	return w.life.startTime
}

// clockFloor is the earliest year of a valid start time of a ready sandbox. A clock without a battery may show the year
// of its manufacture. Such a start time is valid, because the age of a ready sandbox is limited to the uptime.
const clockFloor = 2020

// podAge returns the age of the pod according to the start times in its sandboxes, or in its stored status. The machine's clock may have
// been set after a start, so the age of a ready sandbox is limited to the uptime of the machine.
func podAge(in plan.Input, uptime time.Duration) (oldest time.Duration) {
	if len(in.Observed.Sandboxes) == 0 && clock.IsSet(in.Started) {
		return max(in.Now.Round(0).Sub(in.Started), 0)
	}
	for _, sb := range in.Observed.Sandboxes {
		if !clock.IsSet(sb.Started) && (!sb.Ready || sb.Started.Year() < clockFloor) {
			continue // started before the clock was set
		}
		old := in.Now.Round(0).Sub(sb.Started)
		if sb.Ready {
			old = min(old, uptime)
		}
		oldest = max(oldest, old)
	}
	return oldest
}

// systemUptime returns the time since the machine booted, including the time for which it was suspended.
func systemUptime() time.Duration {
	if up, ok := clock.Uptime(); ok {
		return up
	}
	return 1<<63 - 1 // unknown, so it limits no age
}
