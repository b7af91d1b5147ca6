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
	"github.com/islet-edge/islet/internal/podspec"
)

// The causes for deciding again about a deferred resize. They are values of the label retry_trigger of the metric
// kubelet_pod_deferred_accepted_resizes_total.
const (
	podUpdated    = "pod_updated"
	podResized    = "pod_resized"
	podsRemoved   = "pods_removed"
	podTerminated = "pod_terminated"
	nodeChanged   = "node_changed" // a kubelet does not have this value
)

// Resizes records the resizes of running pods for metrics. *figures.Figures implements it.
type Resizes interface {
	CountRequested(resource, requirement, operation string)
	CountInfeasible(detail string)
	CountAccepted(trigger string) // the resize was deferred before
	// ObserveResolved is called when a resize is no longer deferred: it was accepted, reverted, or terminated by the end of the
	// pod.
	ObserveResolved(resolution, priorityBucket string, after time.Duration)
}

// An allocation contains the resources that the node has allocated to an admitted pod. Pods.mu guards it.
type allocation struct {
	resources    *v1.PodSpec // see allocate.AllocatedPart
	generation   int64       // of the pod that requested it
	stored       bool        // the resources were read from the store; see worker.Wanted.Resized
	pendingGrant *v1.PodSpec // the grant that is being stored; nil if there is none

	pod      *v1.Pod // the wanted pod with the allocated resources
	madeFrom *v1.Pod // the version of the wanted pod from which pod was made; see worker.Wanted.Pod

	decidedVersion      *v1.Pod           // the version of the wanted pod at the last decision
	freedAtDecision     uint64            // Pods.freedCount at the last decision
	refusal             *allocate.Refusal // nil if the pod has the resources that it requested
	deferredSince       time.Time         // when the resize was deferred; zero if no resize is deferred
	announcedGeneration int64             // the generation whose refusal was recorded as an event

	resizing bool            // the containers may still have other resources than the allocated ones
	maxInUse v1.ResourceList // the maximum resources that the containers may still have during a resize
}

// withAllocated returns the wanted pod with its allocated resources. It returns the same object until the wanted
// pod or the resources change, as worker.Wanted.Pod requires. The caller has read the wanted pod under mu and still holds it, because an
// older version must not replace a newer one.
func (a *allocation) withAllocated(wanted *v1.Pod) *v1.Pod {
	if a == nil {
		return wanted
	}
	if a.madeFrom != wanted {
		a.pod, a.madeFrom = allocate.Apply(wanted, a.resources), wanted
	}
	return a.pod
}

// mustDecideResize reports whether the node has to decide about a resize of the pod. This is the case if the
// node has not decided about this version of the pod. It is also the case if the resize was deferred and
// resources were released after that. The caller holds mu.
func (p *Pods) mustDecideResize(d desired.Pod, v verdict) bool {
	a := v.alloc
	if a == nil || v.end != nil || d.Deleting || d.Predecessor != "" || isTerminal(p.states[d.Pod.UID].status.Phase) {
		return false
	}
	if a.withAllocated(d.Pod) == d.Pod {
		return false
	}
	return a.decidedVersion != d.Pod || a.refusal != nil && a.refusal.Reason == v1.PodReasonDeferred && a.freedAtDecision < p.freedCount
}

// pendingResize returns the part of a pod's status about a resize that has not been granted. The caller holds mu.
func (p *Pods) pendingResize(d desired.Pod, a *allocation) plan.Pending {
	out := plan.Pending{Generation: d.Pod.Generation}
	if a == nil {
		return out
	}
	out.Allocated = a.generation
	if a.refusal != nil && a.withAllocated(d.Pod) != d.Pod {
		out.Reason, out.Message = a.refusal.Reason, a.refusal.Message
	}
	return out
}

// currentHolder returns the resources that are reserved for a pod. The amount of each resource is the largest of
// three: the allocated amount, the amount of a grant that is being stored, and the amount that the pod's
// containers may still have. The caller holds mu.
func (v *verdict) currentHolder(wanted *v1.Pod) *admit.Holder {
	pod := v.alloc.withAllocated(wanted)
	if v.reserved == nil || v.reserved.Pod != pod {
		v.reserved = admit.NewHolder(pod)
		if v.alloc != nil && v.alloc.resizing {
			v.reserved.AtLeast(v.alloc.maxInUse)
		}
		if v.alloc != nil && v.alloc.pendingGrant != nil {
			v.reserved.AtLeast(demand.Requests(allocate.Apply(wanted, v.alloc.pendingGrant)))
		}
	}
	return v.reserved
}

// A grant is the decision that a pod gets the resources that it requested.
type grant struct {
	d       desired.Pod
	trigger string // what caused the decision; empty if the resize was not deferred before
}

type noCounter struct{}

func (noCounter) CountRequested(string, string, string)         {}
func (noCounter) CountInfeasible(string)                        {}
func (noCounter) CountAccepted(string)                          {}
func (noCounter) Admitted(*v1.Pod)                              {}
func (noCounter) CountRejection(string)                         {}
func (noCounter) CountPreemption(string)                        {}
func (noCounter) ObserveResolved(string, string, time.Duration) {}

// Allocate decides about the resizes of all pods that wait for a decision, in the order of allocate.Sort. It ignores
// the UID. A grant is stored before it takes effect. As during admission, other pods are preempted for a critical pod.
// After an error the caller must call Allocate again.
func (p *Pods) Allocate(ctx context.Context, _ types.UID) error {
	select { // each decision depends on the results of the earlier decisions
	case p.decisionLock <- struct{}{}:
		defer func() { <-p.decisionLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	node := p.c.Node()
	p.mu.Lock()
	granted, rows, room := p.decideResizes(node)
	p.mu.Unlock()
	var err error
	if room.critical != nil {
		if err = p.preemptAll(ctx, room.Victims, room.critical); err != nil {
			p.retryDecisions(podUpdated) // otherwise, if no pod ends, nothing would cause another decision
		}
	}
	if len(granted) > 0 {
		err = errors.Join(err, p.grantAll(ctx, granted, rows))
	}
	return err
}

// grantAll stores the grants and puts them into effect.
func (p *Pods) grantAll(ctx context.Context, granted []grant, rows map[types.UID]store.Allocation) error {
	err := p.c.Store.Allocate(ctx, rows)
	p.mu.Lock()
	for _, g := range granted {
		p.applyGrant(g, err == nil)
	}
	p.mu.Unlock()
	if err != nil {
		p.retryDecisions(podUpdated) // other pods may have been refused because of these grants
		return err
	}
	for _, g := range granted {
		pod := g.d.Pod
		p.c.Events.Pod(pod, "", v1.EventTypeNormal, allocate.Started, allocate.Message("Pod resize started", pod, pod.Generation, ""))
		p.c.Log.Info("resizing a pod", "pod", nameOf(pod), "uid", pod.UID)
		if g.trigger != "" {
			p.c.Resizes.CountAccepted(g.trigger)
		}
		p.c.Workers.Poke(pod.UID)
	}
	return nil
}

// A clearance contains the pods that have to end so that a critical pod can get more resources.
type clearance struct {
	admit.Victims
	critical *v1.Pod // nil if no pod has to end
}

// decideResizes decides about all pods that request other resources. The resources of a grant are reserved at once. It
// returns the grants, and the same grants in the store's type. If critical pods lack resources, it also returns the
// pods to preempt for the first critical pod. All critical pods without a grant keep their present resources until the
// preempted pods have ended. The caller holds mu.
func (p *Pods) decideResizes(node admit.Node) (granted []grant, rows map[types.UID]store.Allocation, room clearance) {
	var waiting []allocate.WaitingResize
	wanted := map[types.UID]desired.Pod{}
	for uid, v := range p.verdicts {
		if d, ok := p.c.Desired.Get(uid); ok && p.mustDecideResize(d, v) {
			wanted[uid] = d
			waiting = append(waiting, allocate.WaitingResize{Wanted: d.Pod, Allocated: v.alloc.withAllocated(d.Pod),
				Since: v.alloc.deferredSince})
		}
	}
	allocate.Sort(waiting)
	rows = map[types.UID]store.Allocation{}
	for _, w := range waiting {
		uid := w.Wanted.UID
		v := p.verdicts[uid]
		a := v.alloc
		before, trigger := a.refusal, ""
		if !a.deferredSince.IsZero() {
			trigger = p.lastTrigger
			if a.decidedVersion != w.Wanted {
				trigger = podUpdated
			}
		}
		a.decidedVersion, a.freedAtDecision = w.Wanted, p.freedCount
		h := p.collectHolders(uid)
		a.refusal = allocate.Decide(w.Wanted, w.Allocated, h.listHolders(), node)
		if a.refusal != nil {
			p.refuseResize(w.Wanted, a, before)
			s, ok := admit.Preempt(admit.NewHolder(w.Wanted), h.staying, h.coming, node)
			if ok && a.refusal.LacksResources && room.critical == nil {
				room = clearance{s, w.Wanted}
			}
			continue
		}
		a.deferredSince = time.Time{}
		a.pendingGrant, v.reserved = allocate.AllocatedPart(&w.Wanted.Spec), nil
		p.verdicts[uid] = v
		rows[uid] = store.Allocation{Generation: w.Wanted.Generation, Resources: a.pendingGrant}
		granted = append(granted, grant{wanted[uid], trigger})
	}
	return granted, rows, room
}

// refuseResize records the event about a refused resize. It does not record the same refusal twice. The
// caller holds mu.
func (p *Pods) refuseResize(pod *v1.Pod, a *allocation, before *allocate.Refusal) {
	r := a.refusal
	s := p.states[pod.UID].status
	shown, _ := resizeCondition(&s, v1.PodResizePending)
	if a.deferredSince.IsZero() {
		a.deferredSince = time.Now()
		if shown != nil {
			a.deferredSince = shown.LastTransitionTime.Time
		}
	}
	if r.Reason == v1.PodReasonInfeasible && (before == nil || before.Reason != r.Reason) {
		p.c.Resizes.CountInfeasible(r.Detail)
	}
	if shown != nil && shown.Reason == r.Reason && shown.ObservedGeneration == pod.Generation {
		return
	}
	if before != nil && before.Reason == r.Reason && a.announcedGeneration == pod.Generation {
		return
	}
	a.announcedGeneration = pod.Generation
	reason := allocate.Deferred
	if r.Reason == v1.PodReasonInfeasible {
		reason = allocate.Infeasible
	}
	p.c.Events.Pod(pod, "", v1.EventTypeWarning, reason, allocate.Message("Pod resize "+r.Reason, pod, pod.Generation, r.Message))
	p.c.Workers.Poke(pod.UID) // the worker's next round updates the status
}

// applyGrant puts a grant into effect if it was stored, and revokes it otherwise. The caller holds mu.
func (p *Pods) applyGrant(g grant, stored bool) {
	v, ok := p.verdicts[g.d.Pod.UID]
	if !ok || v.alloc == nil || v.alloc.pendingGrant == nil {
		return // the pod was removed
	}
	a := v.alloc
	if !stored {
		a.decidedVersion = nil
	} else {
		had := demand.Requests(allocate.Apply(g.d.Pod, a.resources))
		a.maxInUse, a.resizing = maxOfEach(a.maxInUse, had), true
		a.resources, a.generation, a.pod, a.madeFrom = a.pendingGrant, g.d.Pod.Generation, nil, nil
	}
	a.pendingGrant, v.reserved = nil, nil
	p.verdicts[g.d.Pod.UID] = v
}

// recordResizeEvents compares the previous and the new status of a pod, and records the events about a failed
// or completed resize. It returns true if the resize was completed, which may have released resources. The
// caller holds mu.
func (p *Pods) recordResizeEvents(in plan.Input, v verdict, before, now *v1.PodStatus) (freed bool) {
	a := v.alloc
	if a == nil || in.Want != a.pod {
		return false // in has another version of the pod, or is older than the last grant
	}
	old, _ := resizeCondition(before, v1.PodResizeInProgress)
	shown, goesOn := resizeCondition(now, v1.PodResizeInProgress)
	if goesOn && shown.Reason == v1.PodReasonError && !sameError(old, shown) {
		message := allocate.Message("Pod resize error", in.Want, shown.ObservedGeneration, shown.Message)
		p.c.Events.Pod(in.Want, "", v1.EventTypeWarning, allocate.Failed, message)
	}
	if goesOn || !a.resizing {
		return false
	}
	a.resizing, a.maxInUse = false, nil
	v.reserved = nil
	if p.verdicts[in.UID].alloc == a {
		p.verdicts[in.UID] = v
	}
	if isTerminal(now.Phase) {
		return false
	}
	p.c.Events.Pod(in.Want, "", v1.EventTypeNormal, allocate.Completed, allocate.Message("Pod resize completed", in.Want, a.generation, ""))
	return true
}

// recordResolved compares the previous and the new status of a pod. If a resize is no longer deferred, it
// records in a metric how long the resize was deferred. The new status is nil if the pod was removed.
func (p *Pods) recordResolved(in plan.Input, before, now *v1.PodStatus) {
	was, pending := resizeCondition(before, v1.PodResizePending)
	if !pending || was.Reason != v1.PodReasonDeferred || isTerminal(before.Phase) {
		return
	}
	how := "reverted"
	if now == nil || isTerminal(now.Phase) {
		how = "terminated"
	} else if _, pending := resizeCondition(now, v1.PodResizePending); pending {
		return
	} else if in.Pending.Allocated == in.Pending.Generation {
		how = "accepted"
	}
	var spec *v1.PodSpec
	if in.Want != nil {
		spec = &in.Want.Spec
	}
	p.c.Resizes.ObserveResolved(how, priorityBucket(spec), time.Since(was.LastTransitionTime.Time))
}

// loadAllocation returns the allocation of a pod that ran before the agent restarted. If none is stored, the pod has the resources
// with which its sandbox was created. The caller holds mu.
func (p *Pods) loadAllocation(uid types.UID, rows map[types.UID]store.Allocation) *allocation {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return nil
	}
	a := &allocation{resources: allocate.AllocatedPart(&d.Pod.Spec), generation: d.Pod.Generation}
	if row, ok := rows[uid]; ok {
		a.resources, a.generation, a.stored = row.Resources, row.Generation, true
	} else if made := p.c.SandboxVersion(d.Pod); made != nil {
		a.resources, a.generation = allocate.AllocatedPart(&made.Spec), made.Generation
	}
	return a
}

// restoreResize restores the state of a resize from the pod's last status. The caller holds mu.
func (a *allocation) restoreResize(wanted *v1.Pod, s *v1.PodStatus) {
	if a == nil {
		return
	}
	if c, ok := resizeCondition(s, v1.PodResizePending); ok {
		a.deferredSince = c.LastTransitionTime.Time
	}
	if _, ok := resizeCondition(s, v1.PodResizeInProgress); !ok {
		return
	}
	had := wanted.DeepCopy()
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if _, ctr := podspec.Find(&had.Spec, c.Name); ctr != nil && c.Resources != nil {
			ctr.Resources = *c.Resources
		}
	}
	a.resizing, a.maxInUse = true, demand.Requests(had)
	if s.Resources != nil { // during a resize, the status has the former resources of the pod as a whole
		a.maxInUse = maxOfEach(s.Resources.Requests, a.maxInUse)
	}
}

// Resizing returns the number of pods with a pending resize by reason and priority bucket, and the number of pods that
// are being resized.
func (p *Pods) Resizing() (pending map[[2]string]int, inProgress int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending = map[[2]string]int{}
	for uid, s := range p.states {
		if c, ok := resizeCondition(&s.status, v1.PodResizePending); ok {
			pending[[2]string{c.Reason, priorityBucket(p.verdicts[uid].alloc.allocatedSpec())}]++
		}
		if _, ok := resizeCondition(&s.status, v1.PodResizeInProgress); ok {
			inProgress++
		}
	}
	return pending, inProgress
}

// Allocated returns a wanted pod with its allocated resources.
func (p *Pods) Allocated(pod *v1.Pod) *v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return allocate.Apply(pod, p.verdicts[pod.UID].alloc.allocatedSpec())
}

func (a *allocation) allocatedSpec() *v1.PodSpec {
	if a == nil {
		return nil
	}
	return a.resources
}

// sameError reports whether two conditions are about the same error of a resize.
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

// maxOfEach returns the larger of the two quantities of each resource. The second list must not be nil.
func maxOfEach(a, b v1.ResourceList) v1.ResourceList {
	out := maps.Clone(b)
	for name, q := range a {
		if other, ok := out[name]; !ok || q.Cmp(other) > 0 {
			out[name] = q
		}
	}
	return out
}
