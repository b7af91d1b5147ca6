package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// checkDeadline reports whether the pod has exceeded its activeDeadlineSeconds. Before the deadline, it sets the
// wake-up time to the deadline.
func (p *planner) checkDeadline() bool {
	if p.Want.Spec.ActiveDeadlineSeconds == nil || p.Started.IsZero() {
		return false
	}
	at := deadlineOf(p.Input)
	if p.Now.Before(at) {
		p.wakeAt(at)
		return false
	}
	if p.isRunning() || p.hasActivity() { // otherwise the pod ended earlier, and the notice was already sent
		p.addNotice("", DeadlineExceeded, 0)
	}
	return true
}

// hasActivity reports whether an action other than Ended is in flight or has failed.
func (p *planner) hasActivity() bool {
	for _, f := range p.InFlight {
		if f.Op != Ended {
			return true
		}
	}
	for k := range p.Failed {
		if k.Op != Ended {
			return true
		}
	}
	return false
}

func deadlineOf(in Input) time.Time {
	return in.Started.Add(time.Duration(*in.Want.Spec.ActiveDeadlineSeconds) * time.Second)
}

// DeadlineExpired reports whether the pod was active for longer than its activeDeadlineSeconds. It returns false for a pod
// whose main containers ended before the deadline.
func DeadlineExpired(in Input) bool {
	if in.Want.Spec.ActiveDeadlineSeconds == nil || in.Started.IsZero() || in.Now.Before(deadlineOf(in)) {
		return false
	}
	if !mainsEnded(in, CurrentRound(in), countAll) {
		return true
	}
	return slices.ContainsFunc(in.Want.Spec.Containers, func(ctr v1.Container) bool {
		c, _ := in.Observed.Newest(ctr.Name)
		// The runtime reports wall-clock times, and the clock may have been set in the meantime. If the reported end
		// of a container is in the future, the container counts as ended before the deadline.
		ago := in.Now.Round(0).Sub(c.FinishedAt)
		return ago >= 0 && in.Now.Add(-ago).After(deadlineOf(in))
	})
}
