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

// A verdict is what the node decided about a pod.
type verdict struct {
	end    *plan.End     // nil: the pod may run
	made   uint64        // what Pods.freed was then
	held   *admit.Holder // what the pod holds; nil, or of another object of the pod: it is to be worked out
	coming bool          // it is about to be admitted: it holds what it asks for already
	again  bool          // it was admitted after a refusal, which its status shows still
	leaves bool          // its end was decided while it ran: it holds that until it is over

	unequipped bool // it is refused for devices, or for CPUs or memory of its own: no pod was in its way at admission
	unstored   bool // the store does not know of end

	alloc *allocation // nil: the pod may not run
}

// admitted lets a pod run with the resources it is wanted with.
func admitted(d desired.Pod, made uint64) verdict {
	return verdict{made: made, alloc: &allocation{given: allocate.Of(&d.Pod.Spec), generation: d.Pod.Generation}}
}

// Admit decides whether a pod may run here, unless that is decided. Two pods are
// decided about one after the other, so the last port or byte goes to one of them; the
// store is waited for without others waiting, and so are the pods that end for a critical
// one. An error means that nothing was decided.
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

// decide is Admit, but for a critical pod in whose way is only one of lower priority that
// was there first and is about to be admitted: as with a kubelet, which admits one pod at a
// time, that one is, and makes room then. The channel is closed at the next change.
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
		p.verdicts[uid] = admitted(d, made) // what runs tells the next agent of it
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
			v.end = before.end // that is why there is no room
		}
		return nil, p.refuse(ctx, d, before.end, v, refusal.Message)
	}
	p.verdicts[uid] = verdict{end: before.end, made: made, held: pod, coming: true}
	p.mu.Unlock()
	return nil, p.equip(ctx, d, made, before, known)
}

// refuse makes a refusal count. One for the same reason as before is no news.
func (p *Pods) refuse(ctx context.Context, d desired.Pod, before *plan.End, v verdict, message string) error {
	news := before == nil || before.Reason != v.end.Reason
	if news {
		if err := p.c.Store.Reject(ctx, d.Pod.UID, store.Admission{Reason: v.end.Reason, Message: v.end.Message}); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.verdicts[d.Pod.UID] = v
	if !v.unequipped {
		p.refused++
	}
	p.tell()
	p.mu.Unlock()
	if news {
		p.c.Events.Pod(d.Pod, "", v1.EventTypeWarning, v.end.Reason, message)
		p.c.Log.Warn("pod refused", "pod", nameOf(d.Pod), "uid", d.Pod.UID, "reason", v.end.Reason, "message", message)
	}
	return nil
}

// readmit lets a pod run that was refused before. Until that is stored it holds what it
// asked for, but does not run: an agent that starts meanwhile would end it.
func (p *Pods) readmit(ctx context.Context, d desired.Pod, made uint64, before verdict) error {
	if err := p.c.Store.Admit(ctx, d.Pod.UID); err != nil {
		p.giveUp(d.Pod.UID, before, true)
		return err
	}
	p.mu.Lock()
	v := admitted(d, made)
	v.again = true
	p.verdicts[d.Pod.UID] = v
	p.tell()
	p.mu.Unlock()
	p.c.Log.Info("pod admitted that was refused before", "pod", nameOf(d.Pod), "uid", d.Pod.UID)
	return nil
}

// giveUp takes back that a pod is coming: others may have been refused for it.
func (p *Pods) giveUp(uid types.UID, before verdict, known bool) {
	p.mu.Lock()
	if known {
		p.verdicts[uid] = before
	} else {
		delete(p.verdicts, uid)
	}
	p.tell()
	p.mu.Unlock()
	p.release(podTerminated)
}

// reconsiders reports whether a verdict may be another one now. A refused pod of the
// API server is Failed for good: its controller makes another one. The caller holds mu.
func (p *Pods) reconsiders(d desired.Pod, v verdict) bool {
	return v.end != nil && d.Source != desired.API && v.made < p.freed && !p.c.Off() && !(v.end.Reason == plan.Evicted && p.c.Barred(d.Pod.UID))
}

// holders are the pods that hold what another one may want.
type holders struct {
	staying []*admit.Holder // they may run, and have not ended
	coming  []*admit.Holder // they are about to be admitted
	leaving []*admit.Holder // their end is decided, but has not come
}

func (h holders) all() []*admit.Holder { return slices.Concat(h.staying, h.coming, h.leaving) }

// holders lists the pods but one that hold something. The caller holds mu.
func (p *Pods) holders(except types.UID) (out holders) {
	for uid, v := range p.verdicts {
		holds := v.coming || v.again || (v.end == nil || v.leaves) && !over(p.states[uid].status.Phase)
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
		case v.leaves:
			out.leaving = append(out.leaving, v.held)
		default:
			out.staying = append(out.staying, v.held)
		}
	}
	return out
}

// NodeChanged says that the node is another than it was: refusals may be wrong now.
func (p *Pods) NodeChanged() { p.release(nodeChanged) }

// release lets pods ask again that were refused, or whose resize was: something was given
// back.
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
