package worker

import (
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// An ending is the reason why a pod ends. If the reason changes to a greater value, the grace period starts again.
type ending uint8

const (
	notEnding    ending = iota
	endFinished         // the pod ended by itself, or was active for too long
	endRequested        // the end of the pod was requested
)

// stoppingSince returns the time at which the pod began to end, which is also the start of its grace period.
// It returns the zero time if the pod is not ending.
func (w *worker) stoppingSince(in plan.Input) time.Time {
	why := notEnding
	switch {
	case in.Want == nil || in.Deleting || in.End != nil || !in.ShutdownSince.IsZero():
		why = endRequested
	case plan.IsFinished(in) || plan.DeadlineExpired(in):
		why = endFinished
	}
	switch {
	case why == notEnding:
		w.life.stopTime = time.Time{}
	case why > w.life.ending:
		w.life.stopTime = in.Now
		if off := in.Want != nil && !in.Deleting && in.End == nil && !in.ShutdownSince.IsZero(); off && in.ShutdownSince.Before(in.Now) {
			w.life.stopTime = in.ShutdownSince // the shutdown may have begun before the agent started
		}
	}
	w.life.ending = why
	return w.life.stopTime
}
