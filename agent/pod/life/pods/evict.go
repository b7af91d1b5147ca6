package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// Active returns the active pods with their allocated resources and their statuses. A pod is active if it was admitted, has not
// ended, and the node has not decided to end it. A pod that is being deleted is still active. As in a kubelet, a resize that is not
// granted does not count, so nobody can protect a pod from an eviction with a request that the node cannot fulfil.
func (p *Pods) Active() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*v1.Pod
	for _, d := range p.c.Desired.List() {
		if !p.isActive(d) {
			continue
		}
		pod := *p.verdicts[d.Pod.UID].alloc.withAllocated(d.Pod)
		pod.Status = p.states[pod.UID].status
		out = append(out, &pod)
	}
	return out
}

// isActive reports whether a pod is active; see Active. The caller holds mu.
func (p *Pods) isActive(d desired.Pod) bool {
	v, known := p.verdicts[d.Pod.UID]
	return known && v.end == nil && !v.admitting && p.finalEnd(d) == nil && !isTerminal(p.states[d.Pod.UID].status.Phase)
}

// Evict ends a pod. It returns false if the pod is not active. The decision is stored first, so that the
// eviction continues after a restart of the agent. If the decision cannot be stored, for example because the
// disk is full, the pod is ended nevertheless. The decision is then stored when the pod has ended.
func (p *Pods) Evict(ctx context.Context, uid types.UID, end plan.End) bool {
	d, ok := p.c.Desired.Get(uid)
	p.mu.Lock()
	active := ok && p.isActive(d)
	p.mu.Unlock()
	if !active {
		return false
	}
	err := p.c.Store.Reject(ctx, uid, toAdmission(end))
	if err != nil {
		p.c.Log.Error("the eviction of a pod could not be stored", "pod", nameOf(d.Pod), "uid", uid, "error", err)
	}
	p.mu.Lock()
	if !p.isActive(d) { // meanwhile it ended, or was preempted
		v := p.verdicts[uid]
		p.mu.Unlock()
		p.storeVerdict(ctx, d.Pod, v)
		return false
	}
	p.decideEnd(uid, end)
	if err != nil {
		v := p.verdicts[uid]
		v.unstored = true
		p.verdicts[uid] = v
	}
	p.mu.Unlock()
	p.c.Workers.Poke(uid)
	return true
}

// storeVerdict stores a verdict that is already in effect. It replaces the stored verdict.
func (p *Pods) storeVerdict(ctx context.Context, pod *v1.Pod, v verdict) {
	var err error
	if v.end == nil {
		err = p.c.Store.RemoveRejection(ctx, pod.UID)
	} else {
		err = p.c.Store.Reject(ctx, pod.UID, toAdmission(*v.end))
	}
	if err != nil {
		p.c.Log.Error("the decision about a pod could not be stored", "pod", nameOf(pod), "uid", pod.UID, "error", err)
	}
}

// finishEviction is called after each update of an evicted pod's status. When the phase is terminal, it wakes
// the worker, which then removes the containers. It also stores the decision if that failed before.
func (p *Pods) finishEviction(pod *v1.Pod) {
	p.mu.Lock()
	v, done := p.verdicts[pod.UID], isTerminal(p.states[pod.UID].status.Phase)
	p.mu.Unlock()
	if !done {
		return
	}
	if v.unstored {
		p.storeVerdict(context.Background(), pod, v)
	}
	p.c.Workers.Poke(pod.UID)
}

// shownEnd returns the end that Get returns for a pod. When the status of an evicted pod has a terminal phase, the
// returned end has this phase too. The worker then removes the containers, which are no longer needed to compute the
// status. The caller holds mu.
func (p *Pods) shownEnd(uid types.UID, end *plan.End) *plan.End {
	phase := p.states[uid].status.Phase
	if end == nil || end.Reason != plan.Evicted || !isTerminal(phase) {
		return end
	}
	out := *end
	out.Phase = phase
	return &out
}

// ResourcesReleased reports whether an evicted pod has released all its resources: it has no processes and no files. It returns
// true for a pod that is not wanted, or was not evicted.
func (p *Pods) ResourcesReleased(uid types.UID) bool {
	if now, ok := p.Get(uid); !ok || now.End == nil {
		return true
	}
	in := p.c.Workers.Input(uid) // it may be older than the eviction, so its End is tested
	return in.End != nil && in.End.Phase != "" && in.Ended && len(in.InFlight)+len(in.Observed.Containers) == 0
}
