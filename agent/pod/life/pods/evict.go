package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// Active are the pods that may run here and have not ended, with their status. Those whose
// end the node decided are not among them, those that are deleted are.
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
	return known && v.end == nil && !v.coming && p.ended(d) == nil && !over(p.states[d.Pod.UID].status.Phase)
}

// Evict ends a pod that runs, as one that makes room for a critical pod is ended: first it
// is stored that it does, so an agent that starts meanwhile finds it on its way. A disk that
// is full may be what it ends for, so a store that fails does not save it; that is made up
// for when the pod is over. False: it ends already, or is gone.
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
		p.c.Log.Error("it cannot be stored that a pod is evicted", "pod", nameOf(d.Pod), "uid", uid, "error", err)
	}
	p.mu.Lock()
	if !p.active(d) { // it ended meanwhile, by itself or for a critical pod
		v := p.verdicts[uid]
		p.mu.Unlock()
		p.correct(ctx, d.Pod, v)
		return false
	}
	p.leave(uid, end)
	if err != nil {
		v := p.verdicts[uid]
		v.unstored = true
		p.verdicts[uid] = v
	}
	p.mu.Unlock()
	p.c.Workers.Poke(uid)
	return true
}

// correct stores the verdict that counts, over one that did not come to.
func (p *Pods) correct(ctx context.Context, pod *v1.Pod, v verdict) {
	var err error
	if v.end == nil {
		err = p.c.Store.Admit(ctx, pod.UID)
	} else {
		err = p.c.Store.Reject(ctx, pod.UID, admission(*v.end))
	}
	if err != nil {
		p.c.Log.Error("a verdict on a pod cannot be stored", "pod", nameOf(pod), "uid", pod.UID, "error", err)
	}
}

// evicted does what follows once an evicted pod is shown as over: its containers may go, and
// what could not be stored is.
func (p *Pods) evicted(pod *v1.Pod) {
	p.mu.Lock()
	v, done := p.verdicts[pod.UID], over(p.states[pod.UID].status.Phase)
	p.mu.Unlock()
	if !done {
		return
	}
	if v.unstored {
		p.correct(context.Background(), pod, v)
	}
	p.c.Workers.Poke(pod.UID)
}

// shownEnd is the end of a pod, with the phase that an evicted one is shown in: its last
// status is known, so its containers may go. The caller holds mu.
func (p *Pods) shownEnd(uid types.UID, end *plan.End) *plan.End {
	phase := p.states[uid].status.Phase
	if end == nil || end.Reason != plan.Evicted || !over(phase) {
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
