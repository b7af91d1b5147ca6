package probe

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// Health returns the probe results of the running containers of a pod, by container ID. It implements worker.Health.
// Containers without probes are not included. A container for which no result is known yet is neither started nor
// ready.
func (p *Probes) Health(pod *v1.Pod, seen plan.Observed) map[string]plan.Health {
	if pod == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out map[string]plan.Health
	for _, ctr := range allProbes(pod) {
		c, ok := seen.Newest(ctr.Name)
		if _, done := out[c.ID]; !ok || c.State != plan.Running || done {
			continue
		}
		if out == nil {
			out = map[string]plan.Health{}
		}
		out[c.ID] = p.containerHealth(pod.UID, ctr, c.ID)
	}
	return out
}

// containerHealth returns the results of one container. The caller holds mu.
func (p *Probes) containerHealth(uid types.UID, ctr *v1.Container, id string) plan.Health {
	result := func(k kind) verdict {
		if c := p.pods[uid][subject{ctr.Name, k}]; c != nil && c.id == id {
			return c.verdict
		}
		return noVerdict
	}
	started, ready := result(startup), result(readiness)
	h := plan.Health{
		Started:   started == passedVerdict || ctr.StartupProbe == nil,
		Unhealthy: !p.cfg.Hold && (started == failedVerdict || result(liveness) == failedVerdict),
	}
	if ctr.StartupProbe != nil && started == noVerdict || ctr.ReadinessProbe != nil && ready == noVerdict {
		was := p.earlierResults[id]
		h.Started = h.Started || was.started && started == noVerdict
		h.Ready = was.ready && ready == noVerdict
	}
	h.Ready = h.Started && (h.Ready || ready == passedVerdict || ctr.ReadinessProbe == nil)
	return h
}

// ReadyConfirmed reports whether the probes of a ready pod have succeeded since this agent started. Without
// this check, results of an earlier agent would count until new answers change them, which may take longer
// than a trial. If the agent is not on trial (see Config.Hold), ReadyConfirmed returns true.
func (p *Probes) ReadyConfirmed(pod *v1.Pod) bool {
	if !p.cfg.Hold {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, ctr := range allProbes(pod) {
		if k == startup { // a ready container has started
			continue
		}
		c := p.pods[pod.UID][subject{ctr.Name, k}]
		switch {
		case c == nil || c.verdict == failedVerdict:
			return false
		// A liveness probe may still be waiting for its initial delay.
		case c.counts.passed == 0 && (k == readiness || c.counts.failed > 0):
			return false
		}
	}
	return true
}
