package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// Active returns the pods that may run here and have not ended, with their statuses. It includes pods that are being
// deleted, but not pods whose end the node decided.
func (p *Pods) Active() []*v1.Pod {
	wanted := p.c.Desired.List()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*v1.Pod
	for _, d := range wanted {
		if !p.active(d) {
			continue
		}
		pod := *d.Pod
		pod.Status = p.states[pod.UID].status
		out = append(out, &pod)
	}
	return out
}

// active: see Active. The caller holds mu.
func (p *Pods) active(d desired.Pod) bool {
	v, known := p.verdicts[d.Pod.UID]
	return known && v.end == nil && !v.coming && p.ended(d) == nil && !terminal(p.states[d.Pod.UID].status.Phase)
}

// Evict ends a running pod. The decision is stored first, so an agent that starts meanwhile goes on with it. If it cannot
// be stored, perhaps because the disk is full, the pod ends all the same, and the decision is stored when the pod has
// ended. Evict returns false if the pod ends already, or is gone.
func (p *Pods) Evict(ctx context.Context, uid types.UID, end plan.End) bool {
	d, ok := p.c.Desired.Get(uid)
	p.mu.Lock()
	active := ok && p.active(d)
	p.mu.Unlock()
	if !active {
		return false
	}
	err := p.c.Store.Reject(ctx, uid, admission(end))
	if err != nil {
		p.c.Log.Error("the eviction of a pod could not be stored", "pod", nameOf(d.Pod), "uid", uid, "error", err)
	}
	p.mu.Lock()
	if !p.active(d) { // it ended meanwhile, by itself or for a critical pod
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

// storeVerdict stores the verdict that counts in place of one that was stored but is not carried out.
func (p *Pods) storeVerdict(ctx context.Context, pod *v1.Pod, v verdict) {
	var err error
	if v.end == nil {
		err = p.c.Store.Admit(ctx, pod.UID)
	} else {
		err = p.c.Store.Reject(ctx, pod.UID, admission(*v.end))
	}
	if err != nil {
		p.c.Log.Error("the decision about a pod could not be stored", "pod", nameOf(pod), "uid", pod.UID, "error", err)
	}
}

// finishEviction is called after each status of an evicted pod. When the phase is terminal, it has the containers removed,
// and stores a decision that could not be stored before.
func (p *Pods) finishEviction(pod *v1.Pod) {
	p.mu.Lock()
	v, done := p.verdicts[pod.UID], terminal(p.states[pod.UID].status.Phase)
	p.mu.Unlock()
	if !done {
		return
	}
	if v.unstored {
		p.storeVerdict(context.Background(), pod, v)
	}
	p.c.Workers.Poke(pod.UID)
}

// shownEnd returns the end of a pod. If the status of an evicted pod has a terminal phase, the end has it, too: the
// containers are not needed for a status any more. The caller holds mu.
func (p *Pods) shownEnd(uid types.UID, end *plan.End) *plan.End {
	phase := p.states[uid].status.Phase
	if end == nil || end.Reason != plan.Evicted || !terminal(phase) {
		return end
	}
	out := *end
	out.Phase = phase
	return &out
}

// Cleared reports whether an evicted pod has released everything that another pod could use: it has
// neither processes nor files. It returns true for a pod that is not wanted, or was not evicted.
func (p *Pods) Cleared(uid types.UID) bool {
	if now, ok := p.Get(uid); !ok || now.End == nil {
		return true
	}
	in := p.c.Workers.Input(uid) // of the last round, in which the pod may still have been wanted
	return in.End != nil && in.End.Phase != "" && in.Ended && len(in.Busy)+len(in.Seen.Containers) == 0
}
