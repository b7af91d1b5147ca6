package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// leastGrace is the minimum grace period. It applies to containers that are stopped after the pod's grace
// period has passed.
const leastGrace = 2 * time.Second

// remainingGrace returns the rest of the pod's grace period, and the time at which the period
// ends.
func (p *planner) remainingGrace() (time.Duration, time.Time) {
	since := p.Stopping
	if since.IsZero() || since.After(p.Now) {
		since = p.Now
	}
	until := since.Add(p.Grace)
	return max(until.Sub(p.Now), min(leastGrace, p.Grace)), until
}

// graceAfterHook returns the rest of a container's grace period after its preStop hook, which has used a part of it.
func (p *planner) graceAfterHook(c Container, grace time.Duration) time.Duration {
	return max(grace-p.PreStopped[c.ID], min(leastGrace, grace))
}

// unhealthyGrace returns the grace period of a container whose probe has failed (KEP-2238).
func (p *planner) unhealthyGrace(ctr *v1.Container, c Container) time.Duration {
	probe := ctr.LivenessProbe
	if !p.Health[c.ID].Started {
		probe = ctr.StartupProbe
	}
	if probe == nil || probe.TerminationGracePeriodSeconds == nil {
		return p.Grace
	}
	return time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
}
