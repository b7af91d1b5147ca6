package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
)

// Complete reports whether ChangedSince and Find know the pods of all sources, and the state of these pods in
// the runtime. The pods of a source are known if the source has listed its pods, or if the store contains any
// pod of this source. The pods of a source are always stored together, so after a restart without a network
// the stored pods of the API server are complete.
func (p *Pods) Complete() bool {
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	if !loaded {
		return false
	}
	stored := map[string]bool{}
	if !p.HasReported("") {
		p.c.Desired.ForEach(func(d desired.Pod) { stored[d.Source] = true })
	}
	return !slices.ContainsFunc(p.c.Sources, func(s string) bool { return !stored[s] && !p.c.HasReported(s) })
}

// ChangedSince returns the pods that have changed since a version, with their newest statuses, and the current version.
// The given version was returned by an earlier call. For version 0, it returns all pods. It does not report removed
// pods.
func (p *Pods) ChangedSince(than uint64) (changed []*v1.Pod, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.Desired.ForEach(func(d desired.Pod) {
		if s := p.states[d.Pod.UID]; than == 0 || s.version > than {
			changed = append(changed, withVerifiedStatus(d, s))
		}
	})
	return changed, p.version
}

// Find returns the pod with its newest status, or nil.
func (p *Pods) Find(uid types.UID) *v1.Pod {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return withVerifiedStatus(d, p.states[uid])
}

// withVerifiedStatus is like withStatus, but a pod whose containers were not inspected since the start of the agent is
// not ready.
func withVerifiedStatus(d desired.Pod, s state) *v1.Pod {
	pod := withStatus(d, s)
	if s.computedFor != nil {
		return pod
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady })
	if i >= 0 && pod.Status.Conditions[i].Status == v1.ConditionTrue {
		pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
		c := &pod.Status.Conditions[i]
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "ContainersNotReady", "islet has not inspected the containers since it started"
	}
	return pod
}
