package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// leastGrace is the minimum time between the stop signal and SIGKILL, as in a kubelet. It applies whatever grace period the pod, the
// deletion, the eviction, the shutdown or the user's request gives, and also if that period has passed.
const leastGrace = 2 * time.Second

// leastPodGrace is the minimum grace period of a pod that ends, as in a kubelet. So preStop hooks run even if the pod's grace
// period is 0. They do not run if one container of such a pod is stopped.
const leastPodGrace = time.Second

// remainingGrace returns the rest of the pod's grace period, and the time at which the period
// ends.
func (p *planner) remainingGrace() (time.Duration, time.Time) {
	grace, since := p.Grace, p.Stopping
	if !since.IsZero() {
		grace = max(grace, leastPodGrace)
	}
	if since.IsZero() || since.After(p.Now) {
		since = p.Now
	}
	until := since.Add(grace)
	return max(until.Sub(p.Now), leastGrace), until
}

// graceAfterHook returns the rest of a container's grace period after its preStop hook, which has used a part of it.
func (p *planner) graceAfterHook(c Container, grace time.Duration) time.Duration {
	return max(grace-p.PreStopped[c.ID], leastGrace)
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
