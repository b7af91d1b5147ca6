package pods

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/allocate"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/demand"
)

// What makes a deferred resize be tried again, as kubelet_pod_deferred_accepted_resizes_total
// has it.
const (
	podUpdated    = "pod_updated"
	podResized    = "pod_resized"
	podsRemoved   = "pods_removed"
	podTerminated = "pod_terminated"
	nodeChanged   = "node_changed" // islet's own
)

// Resizes are counted by this; nil counts nothing. *figures.Resizes is one.
type Resizes interface {
	Requested(resource, requirement, operation string)
	Infeasible(detail string)
	Accepted(trigger string) // after it was deferred
}

// An allocation is what the node has given to a pod that it admitted. It is changed
// under Pods.mu only.
type allocation struct {
	given      *v1.PodSpec // see allocate.Of
	generation int64       // of the pod that asked for it
	soon       *v1.PodSpec // is about to be given, once that is stored; nil: nothing is

	pod, of *v1.Pod // the wanted pod with what is given; it was made of that one

	asked   *v1.Pod           // the wanted pod that was decided about last
	tried   uint64            // what Pods.freed was then
	refusal *allocate.Refusal // nil: it has what it asked for
	since   time.Time         // it waits; zero: it does not
	told    int64             // the generation whose refusal an event told of

	moving bool            // containers may not have what is given yet
	least  v1.ResourceList // what they may have had since, at most
}

// allocated is the wanted pod with what it was given. The caller holds mu.
func (a *allocation) allocated(wanted *v1.Pod) *v1.Pod {
	if a == nil {
		return wanted
	}
	if a.of != wanted { // a wanted pod is never changed but replaced
		a.pod, a.of = allocate.Apply(wanted, a.given), wanted
	}
	return a.pod
}

// undecided reports whether the node has yet to decide about the resources that a pod is
// wanted with: it never did, or there may be room by now. The caller holds mu.
func (p *Pods) undecided(d desired.Pod, v verdict) bool {
	a := v.alloc
	if a == nil || v.end != nil || d.Deleting || d.Waiting != "" || a.allocated(d.Pod) == d.Pod || over(p.states[d.Pod.UID].status.Phase) {
		return false
	}
	return a.asked != d.Pod || a.refusal != nil && a.refusal.Reason == v1.PodReasonDeferred && a.tried < p.freed
}

// pending is what a pod's status says of the resources that it does not have. The caller
// holds mu.
func (p *Pods) pending(d desired.Pod, a *allocation) plan.Pending {
	out := plan.Pending{Generation: d.Pod.Generation}
	if a == nil {
		return out
	}
	out.Allocated = a.generation
	if a.refusal != nil && a.allocated(d.Pod) != d.Pod {
		out.Reason, out.Message = a.refusal.Reason, a.refusal.Message
	}
	return out
}

// holder is what a pod holds: what it was given, what it is about to get, and what its
// containers may have yet. The caller holds mu.
func (v *verdict) holder(wanted *v1.Pod) *admit.Holder {
	pod := v.alloc.allocated(wanted)
	if v.held == nil || v.held.Pod != pod {
		v.held = admit.Hold(pod)
		if v.alloc != nil && v.alloc.moving {
			v.held.AtLeast(v.alloc.least)
		}
		if v.alloc != nil && v.alloc.soon != nil {
			v.held.AtLeast(demand.Requests(allocate.Apply(wanted, v.alloc.soon)))
		}
	}
	return v.held
}

// A grant is a pod that gets what it asked for.
type grant struct {
	d       desired.Pod
	trigger string // by which it got it, if it had to wait; empty: it did not
}

type uncounted struct{}

func (uncounted) Requested(string, string, string) {}
func (uncounted) Infeasible(string)                {}
func (uncounted) Accepted(string)                  {}

// Allocate decides whether a pod may have the resources it is wanted with. Of all that
// wait those come first to whom room is given first, so that it does not matter who asks.
// What is given counts once it is stored. Others make room for a critical pod, as when it is
// admitted. An error means that it has to be asked again.
func (p *Pods) Allocate(ctx context.Context, _ types.UID) error {
	select { // one after the other: the next sees what this one gave
	case p.allocating <- struct{}{}:
		defer func() { <-p.allocating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	node := p.c.Node()
	p.mu.Lock()
	granted, rows, room := p.decideResizes(node)
	p.mu.Unlock()
	var err error
	if room.critical != nil {
		if err = p.preemptAll(ctx, room.Sacrifice, room.critical); err != nil {
			p.release(podUpdated) // nothing is going to end that it could wait for
		}
	}
	if len(granted) > 0 {
		err = errors.Join(err, p.grantAll(ctx, granted, rows))
	}
	return err
}

// grantAll has what is granted stored, and then count.
func (p *Pods) grantAll(ctx context.Context, granted []grant, rows map[types.UID]store.Allocation) error {
	err := p.c.Store.Allocate(ctx, rows)
	p.mu.Lock()
	for _, g := range granted {
		p.give(g, err == nil)
	}
	p.mu.Unlock()
	if err != nil {
		p.release(podUpdated) // others may have been refused for it
		return err
	}
	for _, g := range granted {
		pod := g.d.Pod
		p.c.Events.Pod(pod, "", v1.EventTypeNormal, allocate.Started, allocate.Message("Pod resize started", pod, pod.Generation, ""))
		p.c.Log.Info("pod is resized", "pod", nameOf(pod), "uid", pod.UID)
		if g.trigger != "" {
			p.c.Resizes.Accepted(g.trigger)
		}
		p.c.Workers.Poke(pod.UID)
	}
	return nil
}

// A clearance is what has to end so that a critical pod may have more.
type clearance struct {
	admit.Sacrifice
	critical *v1.Pod // nil: nothing has to
}

// decideResizes decides about all pods that ask for other resources. Who gets them holds
// them from now on. Of critical ones that lack room, the first is made room for; until what
// has to go has ended it waits, with what it has, and so do the others. The caller holds mu.
func (p *Pods) decideResizes(node admit.Node) (granted []grant, rows map[types.UID]store.Allocation, room clearance) {
	var waiting []allocate.Waiter
	wanted := map[types.UID]desired.Pod{}
	for uid, v := range p.verdicts {
		if d, ok := p.c.Desired.Get(uid); ok && p.undecided(d, v) {
			wanted[uid] = d
			waiting = append(waiting, allocate.Waiter{Wanted: d.Pod, Allocated: v.alloc.allocated(d.Pod), Since: v.alloc.since})
		}
	}
	allocate.Sort(waiting)
	rows = map[types.UID]store.Allocation{}
	for _, w := range waiting {
		uid := w.Wanted.UID
		v := p.verdicts[uid]
		a := v.alloc
		before, trigger := a.refusal, ""
		if !a.since.IsZero() {
			trigger = p.trigger
			if a.asked != w.Wanted {
				trigger = podUpdated
			}
		}
		a.asked, a.tried = w.Wanted, p.freed
		h := p.holders(uid)
		a.refusal = allocate.Decide(w.Wanted, w.Allocated, h.all(), node)
		if a.refusal != nil {
			p.refuseResize(w.Wanted, a, before)
			if s, ok := admit.Preempt(admit.Hold(w.Wanted), h.staying, h.coming, node); ok && a.refusal.Lacks && room.critical == nil {
				room = clearance{s, w.Wanted}
			}
			continue
		}
		a.since = time.Time{}
		a.soon, v.held = allocate.Of(&w.Wanted.Spec), nil
		p.verdicts[uid] = v
		rows[uid] = store.Allocation{Generation: w.Wanted.Generation, Resources: a.soon}
		granted = append(granted, grant{wanted[uid], trigger})
	}
	return granted, rows, room
}

// refuseResize tells of a resize that is refused, unless it is known. The caller holds mu.
func (p *Pods) refuseResize(pod *v1.Pod, a *allocation, before *allocate.Refusal) {
	r := a.refusal
	s := p.states[pod.UID].status
	shown, _ := resizeCondition(&s, v1.PodResizePending)
	if a.since.IsZero() {
		a.since = time.Now()
		if shown != nil {
			a.since = shown.LastTransitionTime.Time
		}
	}
	if r.Reason == v1.PodReasonInfeasible && (before == nil || before.Reason != r.Reason) {
		p.c.Resizes.Infeasible(r.Detail)
	}
	if shown != nil && shown.Reason == r.Reason && shown.ObservedGeneration == pod.Generation || before != nil && before.Reason == r.Reason && a.told == pod.Generation {
		return
	}
	a.told = pod.Generation
	reason := allocate.Deferred
	if r.Reason == v1.PodReasonInfeasible {
		reason = allocate.Infeasible
	}
	p.c.Events.Pod(pod, "", v1.EventTypeWarning, reason, allocate.Message("Pod resize "+r.Reason, pod, pod.Generation, r.Message))
	p.c.Workers.Poke(pod.UID) // whose next round puts it into the status
}

// give makes a grant count, or takes it back if it could not be stored. The caller holds
// mu.
func (p *Pods) give(g grant, stored bool) {
	v, ok := p.verdicts[g.d.Pod.UID]
	if !ok || v.alloc == nil || v.alloc.soon == nil {
		return // it went meanwhile
	}
	a := v.alloc
	if !stored {
		a.asked = nil
	} else {
		had := demand.Requests(allocate.Apply(g.d.Pod, a.given))
		a.least, a.moving = most(a.least, had), true
		a.given, a.generation, a.pod, a.of = a.soon, g.d.Pod.Generation, nil, nil
	}
	a.soon, v.held = nil, nil
	p.verdicts[g.d.Pod.UID] = v
}

// moved looks whether a resize went on, and tells of it. It reports whether something
// was given back. The caller holds mu.
func (p *Pods) moved(in plan.Input, v verdict, before, now *v1.PodStatus) (freed bool) {
	a := v.alloc
	if a == nil || in.Want != a.pod {
		return false // it is not about what is given now
	}
	old, _ := resizeCondition(before, v1.PodResizeInProgress)
	shown, goesOn := resizeCondition(now, v1.PodResizeInProgress)
	if goesOn && shown.Reason == v1.PodReasonError && (old == nil || old.Reason != shown.Reason || old.Message != shown.Message || old.ObservedGeneration != shown.ObservedGeneration) {
		p.c.Events.Pod(in.Want, "", v1.EventTypeWarning, allocate.Failed, allocate.Message("Pod resize error", in.Want, shown.ObservedGeneration, shown.Message))
	}
	if goesOn || !a.moving {
		return false
	}
	a.moving, a.least = false, nil
	if v.held = nil; p.verdicts[in.UID].alloc == a {
		p.verdicts[in.UID] = v
	}
	if over(now.Phase) {
		return false
	}
	p.c.Events.Pod(in.Want, "", v1.EventTypeNormal, allocate.Completed, allocate.Message("Pod resize completed", in.Want, a.generation, ""))
	return true
}

// load takes over what the last run gave to a pod: what it stored, or else what the pod's
// sandbox was made with. The caller holds mu.
func (p *Pods) load(uid types.UID, rows map[types.UID]store.Allocation) *allocation {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return nil
	}
	a := &allocation{given: allocate.Of(&d.Pod.Spec), generation: d.Pod.Generation}
	if row, ok := rows[uid]; ok {
		a.given, a.generation = row.Resources, row.Generation
	} else if made := p.c.Made(d.Pod); made != nil {
		a.given, a.generation = allocate.Of(&made.Spec), made.Generation
	}
	return a
}

// resume takes over from a pod's last status that it was being resized. The caller holds
// mu.
func (a *allocation) resume(wanted *v1.Pod, s *v1.PodStatus) {
	if a == nil {
		return
	}
	if c, ok := resizeCondition(s, v1.PodResizePending); ok {
		a.since = c.LastTransitionTime.Time
	}
	if _, ok := resizeCondition(s, v1.PodResizeInProgress); !ok {
		return
	}
	had := *wanted
	had.Spec.Containers = slices.Clone(had.Spec.Containers)
	for i := range had.Spec.Containers {
		for _, c := range s.ContainerStatuses {
			if ctr := &had.Spec.Containers[i]; c.Name == ctr.Name && c.Resources != nil {
				ctr.Resources = *c.Resources
			}
		}
	}
	a.moving, a.least = true, demand.Requests(&had)
}

// Resizing counts the pods that wait for other resources, by reason, and those that are
// on their way to them.
func (p *Pods) Resizing() (pending map[string]int, inProgress int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending = map[string]int{}
	for _, s := range p.states {
		if c, ok := resizeCondition(&s.status, v1.PodResizePending); ok {
			pending[c.Reason]++
		}
		if _, ok := resizeCondition(&s.status, v1.PodResizeInProgress); ok {
			inProgress++
		}
	}
	return pending, inProgress
}

// Allocated is a wanted pod with the resources that the node has given it.
func (p *Pods) Allocated(pod *v1.Pod) *v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return allocate.Apply(pod, p.verdicts[pod.UID].alloc.spec())
}

func (a *allocation) spec() *v1.PodSpec {
	if a == nil {
		return nil
	}
	return a.given
}

func resizeCondition(s *v1.PodStatus, t v1.PodConditionType) (*v1.PodCondition, bool) {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i], true
		}
	}
	return nil, false
}

// most has of each resource what is more.
func most(a, b v1.ResourceList) v1.ResourceList {
	out := maps.Clone(b)
	for name, q := range a {
		if other, ok := out[name]; !ok || q.Cmp(other) > 0 {
			out[name] = q
		}
	}
	return out
}
