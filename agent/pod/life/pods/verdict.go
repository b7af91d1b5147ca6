package pods

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/allocate"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
)

// A verdict is the node's decision about a pod.
type verdict struct {
	end    *plan.End     // nil: the pod may run
	made   uint64        // what Pods.freed was then
	held   *admit.Holder // the resources that the pod holds; nil, or of another version of the pod: not computed yet
	coming bool          // it is about to be admitted, and holds the resources that it requests already
	again  bool          // it was admitted after a refusal that its status still shows
	ending bool          // its end was decided while it ran: it holds its resources until it has ended

	lacksDevices bool // refused for devices, or for CPUs or memory of its own: no pod was in its way at admission
	unstored     bool // end could not be stored

	alloc *allocation // nil: the pod may not run
}

// admitted returns the verdict that a pod may run with the resources that it is wanted with.
func admitted(d desired.Pod, made uint64) verdict {
	return verdict{made: made, alloc: &allocation{given: allocate.Of(&d.Pod.Spec), generation: d.Pod.Generation}}
}

// Admit decides whether the pod may run on this node. If a decision counts already, it keeps that one. Decisions are
// made one after the other, so only one pod gets the last port or byte. While Admit waits for the store, or for pods that
// end for a critical one, other pods do not wait. An error means that nothing was decided.
func (p *Pods) Admit(ctx context.Context, uid types.UID) error {
	for {
		first, err := p.decide(ctx, uid)
		if first == nil || err != nil {
			return err
		}
		select {
		case <-first:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decide is Admit, with one exception: a critical pod that lacks only what a pod of lower priority is about to get waits
// until that pod is admitted, and then preempts it, as a kubelet does, which admits one pod at a time. first is then not
// nil, and closed at the next change.
func (p *Pods) decide(ctx context.Context, uid types.UID) (first <-chan struct{}, err error) {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return nil, nil
	}
	node := p.c.Node()
	node.Off = p.c.Off()
	p.mu.Lock()
	before, known := p.verdicts[uid]
	if known && !p.reconsiders(d, before) {
		p.mu.Unlock()
		return nil, nil
	}
	pod, made := admit.Hold(d.Pod), p.freed
	h := p.holders(uid)
	refusal := admit.Admit(pod, h.all(), node)
	if refusal == nil && !known && !p.c.Devices.Wants(d.Pod) {
		p.verdicts[uid] = admitted(d, made) // the next agent sees it from what runs
		p.mu.Unlock()
		return nil, nil
	}
	if refusal.OfResources() {
		if s, ok := admit.Preempt(pod, h.staying, h.coming, node); ok {
			p.verdicts[uid] = verdict{end: before.end, made: made, held: pod, coming: true}
			p.mu.Unlock()
			return nil, p.makeRoom(ctx, d, s, node, before, known)
		}
		if _, ok := admit.Preempt(pod, slices.Concat(h.staying, h.coming), nil, node); ok {
			first = p.news
			p.mu.Unlock()
			return first, nil
		}
	}
	if refusal != nil {
		p.mu.Unlock()
		v := verdict{end: &plan.End{Reason: refusal.Reason, Message: "Pod was rejected: " + refusal.Message}, made: made}
		if before.end != nil && before.end.Reason == plan.Preempting && refusal.OfResources() {
			v.end = before.end // it was preempted for the same lack of room
		}
		return nil, p.refuse(ctx, d, before.end, v, refusal.Message)
	}
	p.verdicts[uid] = verdict{end: before.end, made: made, held: pod, coming: true}
	p.mu.Unlock()
	return nil, p.allocateDevices(ctx, d, made, before, known)
}

// refuse stores a refusal, after which it counts. A refusal for the same reason as before records no event.
func (p *Pods) refuse(ctx context.Context, d desired.Pod, before *plan.End, v verdict, message string) error {
	news := before == nil || before.Reason != v.end.Reason
	if news {
		if err := p.c.Store.Reject(ctx, d.Pod.UID, store.Admission{Reason: v.end.Reason, Message: v.end.Message}); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.verdicts[d.Pod.UID] = v
	if !v.lacksDevices {
		p.refused++
	}
	p.wakeWatchers()
	p.mu.Unlock()
	if news {
		p.c.Events.Pod(d.Pod, "", v1.EventTypeWarning, v.end.Reason, message)
		p.c.Log.Warn("pod refused", "pod", nameOf(d.Pod), "uid", d.Pod.UID, "reason", v.end.Reason, "message", message)
	}
	return nil
}

// readmit lets a pod run that was refused before. Until that is stored the pod holds the resources that it requests, but
// does not run: an agent that starts meanwhile would end it.
func (p *Pods) readmit(ctx context.Context, d desired.Pod, made uint64, before verdict) error {
	if err := p.c.Store.Admit(ctx, d.Pod.UID); err != nil {
		p.cancelAdmission(d.Pod.UID, before, true)
		return err
	}
	p.mu.Lock()
	v := admitted(d, made)
	v.again = true
	p.verdicts[d.Pod.UID] = v
	p.wakeWatchers()
	p.mu.Unlock()
	p.c.Log.Info("pod admitted that was refused before", "pod", nameOf(d.Pod), "uid", d.Pod.UID)
	return nil
}

// cancelAdmission removes the mark of a pod that was about to be admitted. Others may have been refused for it.
func (p *Pods) cancelAdmission(uid types.UID, before verdict, known bool) {
	p.mu.Lock()
	if known {
		p.verdicts[uid] = before
	} else {
		delete(p.verdicts, uid)
	}
	p.wakeWatchers()
	p.mu.Unlock()
	p.release(podTerminated)
}

// reconsiders reports whether a refusal may be wrong by now. A refused pod from the API server stays Failed: its
// controller makes another one. The caller holds mu.
func (p *Pods) reconsiders(d desired.Pod, v verdict) bool {
	if v.end == nil || d.Source == desired.API || v.made >= p.freed || p.c.Off() {
		return false
	}
	return v.end.Reason != plan.Evicted || !p.c.Barred(d.Pod.UID)
}

// holders are the pods that hold resources.
type holders struct {
	staying []*admit.Holder // may run, and have not ended
	coming  []*admit.Holder // are about to be admitted
	leaving []*admit.Holder // are to end, and have not ended
}

func (h holders) all() []*admit.Holder { return slices.Concat(h.staying, h.coming, h.leaving) }

// holders returns the pods that hold resources, without the pod except. The caller holds mu.
func (p *Pods) holders(except types.UID) (out holders) {
	for uid, v := range p.verdicts {
		holds := v.coming || v.again || (v.end == nil || v.ending) && !terminal(p.states[uid].status.Phase)
		if uid == except || !holds {
			continue
		}
		d, ok := p.c.Desired.Get(uid)
		if !ok {
			continue
		}
		v.held = v.holder(d.Pod)
		p.verdicts[uid] = v
		switch {
		case v.coming:
			out.coming = append(out.coming, v.held)
		case v.ending:
			out.leaving = append(out.leaving, v.held)
		default:
			out.staying = append(out.staying, v.held)
		}
	}
	return out
}

// NodeChanged has refusals reconsidered, because the node has changed.
func (p *Pods) NodeChanged() { p.release(nodeChanged) }

// release has refused pods, and pods with a deferred resize, decided about again, because resources were released.
func (p *Pods) release(trigger string) {
	p.mu.Lock()
	p.freed++
	p.trigger = trigger
	var again []types.UID
	for uid, v := range p.verdicts {
		d, ok := p.c.Desired.Get(uid)
		if ok && (v.end != nil && d.Source != desired.API || v.end == nil && p.undecided(d, v)) {
			again = append(again, uid)
		}
	}
	p.mu.Unlock()
	for _, uid := range again {
		p.c.Workers.Poke(uid)
	}
}
