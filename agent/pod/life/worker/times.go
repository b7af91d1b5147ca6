package worker

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// since returns when the node first took the pod up. Annotations of the sandboxes keep that over restarts of the agent. A
// time that was written before the clock was set does not count.
func (w *worker) since(in plan.Input) time.Time {
	if w.life.started.IsZero() && !in.Waiting {
		w.life.started = in.Now
		if !w.aged { // only once: the clock may be set later
			w.aged = true
			w.life.started = in.Now.Add(-age(in, w.set.cfg.Uptime()))
		}
	}
	return w.life.started
}

// clockFloor is the year before which no sandbox of this program can have been started. The floor of
// package clock is later: a sandbox of before may have a time between the two.
const clockFloor = 2020

// age returns how old the pod was when this agent took it up, from the times in its sandboxes. The machine's clock may
// have been set since, so a sandbox that is ready counts as no older than the uptime.
func age(in plan.Input, uptime time.Duration) (oldest time.Duration) {
	for _, sb := range in.Seen.Sandboxes {
		if sb.Started.Year() < clockFloor {
			continue
		}
		old := in.Now.Round(0).Sub(sb.Started)
		if sb.Ready {
			old = min(old, uptime)
		}
		oldest = max(oldest, old)
	}
	return oldest
}

// uptime returns how long the machine is up, suspended time included.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 1<<63 - 1 // no bound is known
	}
	return time.Duration(now.Nano())
}

// An ending is why a pod stops.
type ending uint8

const (
	goesOn    ending = iota // it does not stop
	finished                // it ended by itself: containers that still run have the grace period
	requested               // its end was requested: the grace period begins anew
)

// until returns when the end of the pod began, and with it the grace period; zero: the pod does not end.
func (w *worker) until(in plan.Input) time.Time {
	why := goesOn
	switch {
	case in.Want == nil || in.Deleting || in.End != nil || !in.Off.IsZero():
		why = requested
	case plan.Finished(in) || plan.Expired(in):
		why = finished
	}
	switch {
	case why == goesOn:
		w.life.stopping = time.Time{}
	case why > w.life.ending:
		w.life.stopping = in.Now
		if off := in.Want != nil && !in.Deleting && in.End == nil && !in.Off.IsZero(); off && in.Off.Before(in.Now) {
			w.life.stopping = in.Off // which may be before this agent's start
		}
	}
	w.life.ending = why
	return w.life.stopping
}

// hooked returns the IDs of the containers whose postStart hook has returned.
func hooked(seen plan.Observed, returned func(string) bool) (out map[string]bool) {
	for _, c := range seen.Containers {
		if c.PostStart && returned(c.ID) {
			if out == nil {
				out = map[string]bool{}
			}
			out[c.ID] = true
		}
	}
	return out
}
