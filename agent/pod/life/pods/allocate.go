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

// Triggers of another decision about a deferred resize: a label of kubelet_pod_deferred_accepted_resizes_total.
const (
	podUpdated    = "pod_updated"
	podResized    = "pod_resized"
	podsRemoved   = "pods_removed"
	podTerminated = "pod_terminated"
	nodeChanged   = "node_changed" // islet's own
)

// Resizes counts resizes. *figures.Figures is one.
type Resizes interface {
	Requested(resource, requirement, operation string)
	Infeasible(detail string)
	Accepted(trigger string) // after it was deferred
}

// An allocation is the resources that the node has allocated to an admitted pod. Pods.mu guards it.
type allocation struct {
	given      *v1.PodSpec // see allocate.Of
	generation int64       // of the pod that requested it
	granting   *v1.PodSpec // will be given once it is stored; nil: there is none

	pod      *v1.Pod // the wanted pod with the resources that are given
	madeFrom *v1.Pod // the version of the wanted pod that pod was made from: see worker.Wanted.Pod

	asked     *v1.Pod           // the version of the wanted pod that was decided about last
	tried     uint64            // what Pods.freed was then
	refusal   *allocate.Refusal // nil: it has what it requested
	since     time.Time         // when the resize was deferred; zero: none is
	announced int64             // the generation whose refusal was recorded as an event

	moving bool            // containers may not have what is given yet
	least  v1.ResourceList // the most that they may have had since
}

// allocated returns the wanted pod with the resources that it was given. It returns the same object until the wanted
// pod or the resources change, as worker.Wanted.Pod requires. The caller holds mu.
func (a *allocation) allocated(wanted *v1.Pod) *v1.Pod {
	if a == nil {
		return wanted
	}
	if a.madeFrom != wanted {
		a.pod, a.madeFrom = allocate.Apply(wanted, a.given), wanted
	}
	return a.pod
}

// undecided reports whether the node has to decide about the resources that a pod is wanted with: it never did, or there
// may be room by now. The caller holds mu.
func (p *Pods) undecided(d desired.Pod, v verdict) bool {
	a := v.alloc
	if a == nil || v.end != nil || d.Deleting || d.Waiting != "" || terminal(p.states[d.Pod.UID].status.Phase) {
		return false
	}
	if a.allocated(d.Pod) == d.Pod {
		return false
	}
	return a.asked != d.Pod || a.refusal != nil && a.refusal.Reason == v1.PodReasonDeferred && a.tried < p.freed
}

// pending returns what a pod's status shows about resources that it requested and does not have. The caller holds mu.
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

// holder returns the resources that a pod holds: for each, the most of what it was given, is about to get, and its
// containers may still have. The caller holds mu.
func (v *verdict) holder(wanted *v1.Pod) *admit.Holder {
	pod := v.alloc.allocated(wanted)
	if v.held == nil || v.held.Pod != pod {
		v.held = admit.Hold(pod)
		if v.alloc != nil && v.alloc.moving {
			v.held.AtLeast(v.alloc.least)
		}
		if v.alloc != nil && v.alloc.granting != nil {
			v.held.AtLeast(demand.Requests(allocate.Apply(wanted, v.alloc.granting)))
		}
	}
	return v.held
}

// A grant is a pod that gets the resources that it requested.
type grant struct {
	d       desired.Pod
	trigger string // of the decision, if an earlier one deferred the resize; else empty
}

type uncounted struct{}

func (uncounted) Requested(string, string, string) {}
func (uncounted) Infeasible(string)                {}
func (uncounted) Accepted(string)                  {}

// Allocate decides whether pods may have the resources that they are wanted with. It decides about all that wait, in the
// order of allocate.Sort, so that it does not matter for which pod it is called. Granted resources count once they are
// stored. For a critical pod others are preempted, as at admission. After an error it has to be called again.
func (p *Pods) Allocate(ctx context.Context, _ types.UID) error {
	select { // one decision after the other, so that each sees the ones before
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
			p.release(podUpdated) // no pod is going to end that it could wait for
		}
	}
	if len(granted) > 0 {
		err = errors.Join(err, p.grantAll(ctx, granted, rows))
	}
	return err
}

// grantAll stores the grants, after which they count.
func (p *Pods) grantAll(ctx context.Context, granted []grant, rows map[types.UID]store.Allocation) error {
	err := p.c.Store.Allocate(ctx, rows)
	p.mu.Lock()
	for _, g := range granted {
		p.give(g, err == nil)
	}
	p.mu.Unlock()
	if err != nil {
		p.release(podUpdated) // others may have been refused because of it
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

// A clearance is the pods that have to end so that a critical pod may have more.
type clearance struct {
	admit.Sacrifice
	critical *v1.Pod // nil: there are none
}

// decideResizes decides about all pods that request other resources. A granted pod holds them from now on. If critical
// pods lack room, others are preempted for the first of them; until those have ended all of them keep what they have. The
// caller holds mu.
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
		a.granting, v.held = allocate.Of(&w.Wanted.Spec), nil
		p.verdicts[uid] = v
		rows[uid] = store.Allocation{Generation: w.Wanted.Generation, Resources: a.granting}
		granted = append(granted, grant{wanted[uid], trigger})
	}
	return granted, rows, room
}

// refuseResize records that a resize is refused, once. The caller holds mu.
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
	if shown != nil && shown.Reason == r.Reason && shown.ObservedGeneration == pod.Generation {
		return
	}
	if before != nil && before.Reason == r.Reason && a.announced == pod.Generation {
		return
	}
	a.announced = pod.Generation
	reason := allocate.Deferred
	if r.Reason == v1.PodReasonInfeasible {
		reason = allocate.Infeasible
	}
	p.c.Events.Pod(pod, "", v1.EventTypeWarning, reason, allocate.Message("Pod resize "+r.Reason, pod, pod.Generation, r.Message))
	p.c.Workers.Poke(pod.UID) // whose next round puts it into the status
}

// give makes a grant count, or takes it back if it could not be stored. The caller holds mu.
func (p *Pods) give(g grant, stored bool) {
	v, ok := p.verdicts[g.d.Pod.UID]
	if !ok || v.alloc == nil || v.alloc.granting == nil {
		return // the pod is gone
	}
	a := v.alloc
	if !stored {
		a.asked = nil
	} else {
		had := demand.Requests(allocate.Apply(g.d.Pod, a.given))
		a.least, a.moving = larger(a.least, had), true
		a.given, a.generation, a.pod, a.madeFrom = a.granting, g.d.Pod.Generation, nil, nil
	}
	a.granting, v.held = nil, nil
	p.verdicts[g.d.Pod.UID] = v
}

// moved records the progress of a resize. It reports whether the pod released resources. The caller holds mu.
func (p *Pods) moved(in plan.Input, v verdict, before, now *v1.PodStatus) (freed bool) {
	a := v.alloc
	if a == nil || in.Want != a.pod {
		return false // in is of another version of the pod, or from before the last grant
	}
	old, _ := resizeCondition(before, v1.PodResizeInProgress)
	shown, goesOn := resizeCondition(now, v1.PodResizeInProgress)
	if goesOn && shown.Reason == v1.PodReasonError && !sameError(old, shown) {
		message := allocate.Message("Pod resize error", in.Want, shown.ObservedGeneration, shown.Message)
		p.c.Events.Pod(in.Want, "", v1.EventTypeWarning, allocate.Failed, message)
	}
	if goesOn || !a.moving {
		return false
	}
	a.moving, a.least = false, nil
	v.held = nil
	if p.verdicts[in.UID].alloc == a {
		p.verdicts[in.UID] = v
	}
	if terminal(now.Phase) {
		return false
	}
	p.c.Events.Pod(in.Want, "", v1.EventTypeNormal, allocate.Completed, allocate.Message("Pod resize completed", in.Want, a.generation, ""))
	return true
}

// load returns what the last run gave to a pod: what it stored, or else what the pod's sandbox was made with. The caller
// holds mu.
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

// resume goes on with a resize that the pod's last status shows. The caller holds mu.
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

// Resizing returns how many pods wait for other resources, by reason, and how many are being resized.
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

// Allocated returns a wanted pod with the resources that the node has given it.
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

// sameError reports whether two conditions show the same error of a resize.
func sameError(a, b *v1.PodCondition) bool {
	return a != nil && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

func resizeCondition(s *v1.PodStatus, t v1.PodConditionType) (*v1.PodCondition, bool) {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i], true
		}
	}
	return nil, false
}

// larger returns the larger quantity of each resource.
func larger(a, b v1.ResourceList) v1.ResourceList {
	out := maps.Clone(b)
	for name, q := range a {
		if other, ok := out[name]; !ok || q.Cmp(other) > 0 {
			out[name] = q
		}
	}
	return out
}
