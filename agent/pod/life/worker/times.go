package worker

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/clock"
)

// since says when the pod was first taken up. The sandboxes remember it over restarts of
// the agent; what was written there before the clock was set does not count.
func (w *worker) since(in plan.Input) time.Time {
	if w.life.started.IsZero() && !in.Waiting {
		w.life.started = in.Now
		if !w.aged { // once: the clock may be set later
			w.aged = true
			w.life.started = in.Now.Add(-age(in, w.set.cfg.Uptime()))
		}
	}
	return w.life.started
}

// age is how old the pod was when this agent took it up, as its sandboxes say by the
// machine's clock. That may have been set since: one that lives is no older than the
// machine is up.
func age(in plan.Input, uptime time.Duration) (oldest time.Duration) {
	for _, sb := range in.Seen.Sandboxes {
		if !clock.IsSet(sb.Started) {
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

// uptime is how long the machine is up, with the time that it slept.
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
	goesOn ending = iota
	isOver        // by itself: what still runs has its grace period
	asked         // somebody wants its end: its grace period begins
)

// until says when the end of the pod began, and with it its grace period.
func (w *worker) until(in plan.Input) time.Time {
	why := goesOn
	switch {
	case in.Want == nil || in.Deleting || in.End != nil || !in.Off.IsZero():
		why = asked
	case plan.Finished(in) || plan.Expired(in):
		why = isOver
	}
	switch {
	case why == goesOn:
		w.life.stopping = time.Time{}
	case why > w.life.ending:
		w.life.stopping = in.Now
		if off := in.Want != nil && !in.Deleting && in.End == nil && !in.Off.IsZero(); off && in.Off.Before(in.Now) {
			w.life.stopping = in.Off // also if that was before this agent's start
		}
	}
	w.life.ending = why
	return w.life.stopping
}

// hooked finds the containers whose postStart hook has returned.
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
