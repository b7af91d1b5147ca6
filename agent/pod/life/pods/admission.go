package pods

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/allocate"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
)

// A verdict is the node's decision whether a pod may run.
type verdict struct {
	end             *plan.End     // nil if the pod may run
	freedAtDecision uint64        // Pods.freedCount at the time of the decision
	reserved        *admit.Holder // the resources that are reserved for the pod; may be nil or outdated
	admitting       bool          // the pod is about to be admitted, and the resources that it requests are reserved
	readmitted      bool          // the pod was admitted after a refusal, and its status still shows the refusal
	ending          bool          // the pod was running when its end was decided; its resources are reserved until it has ended

	lacksDevices bool // the pod was refused because it lacks devices, exclusive CPUs or memory
	unstored     bool // end could not be stored

	alloc *allocation // nil unless the pod is admitted, or is still ending
}

// admittedVerdict returns the verdict that a pod may run with the resources that it requests.
func admittedVerdict(d desired.Pod, made uint64) verdict {
	return verdict{freedAtDecision: made, alloc: &allocation{resources: allocate.AllocatedPart(&d.Pod.Spec), generation: d.Pod.Generation}}
}

// Admit decides whether the pod may run on this node. It keeps an earlier decision, unless that has to be
// reconsidered. Decisions are serialized, so that two pods cannot get the same port or memory. While Admit
// waits for the store or for preempted pods, other decisions are not blocked. An error means that there is no
// decision.
func (p *Pods) Admit(ctx context.Context, uid types.UID) error {
	for isFresh := false; ; {
		first, err := p.tryDecide(ctx, uid, &isFresh)
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

// tryDecide makes one attempt to decide about a pod. If it returns a channel, it has not decided, and must be called
// again when the channel is closed. This happens if a critical pod lacks resources, and all that it lacks are reserved
// for a pod of lower priority that is about to be admitted. The critical pod waits for that admission, and then
// preempts the other pod. A kubelet, which admits one pod at a time, has the same result. The parameter isFresh becomes true when the Node
// was read for this decision.
func (p *Pods) tryDecide(ctx context.Context, uid types.UID, isFresh *bool) (first <-chan struct{}, err error) {
	d, ok := p.c.Desired.Get(uid)
	if !ok {
		return nil, nil
	}
	node := p.c.Node()
	node.ShuttingDown = p.c.ShuttingDown()
	pod := admit.NewHolder(d.Pod)
	p.mu.Lock()
	before, known := p.verdicts[uid]
	if known && !p.mustDecideAgain(d, before) {
		p.mu.Unlock()
		return nil, nil
	}
	made := p.freedCount
	h := p.collectHolders(uid)
	refusal := admit.Admit(pod, h.listHolders(), node)
	if refusal == nil && !known && !p.c.Devices.NeedsAllocation(d.Pod) {
		v := admittedVerdict(d, made) // after a restart of the agent, the running pod shows this decision
		v.reserved = pod
		p.verdicts[uid] = v
		p.mu.Unlock()
		p.c.Admissions.Admitted(d.Pod)
		return nil, nil
	}
	if refusal.OfNode() && p.readNode(ctx, d, isFresh) {
		return p.tryDecide(ctx, uid, isFresh)
	}
	if refusal.OfResources() {
		if s, ok := admit.Preempt(pod, h.staying, h.coming, node); ok {
			p.verdicts[uid] = verdict{end: before.end, freedAtDecision: made, reserved: pod, admitting: true}
			p.mu.Unlock()
			return nil, p.makeRoom(ctx, d, s, node, before, known)
		}
		if _, ok := admit.Preempt(pod, slices.Concat(h.staying, h.coming), nil, node); ok {
			first = p.changeSignal
			p.mu.Unlock()
			return first, nil
		}
	}
	if refusal != nil {
		p.mu.Unlock()
		v := verdict{end: &plan.End{Reason: refusal.Reason, Message: "Pod was rejected: " + refusal.Message}, freedAtDecision: made}
		if before.end != nil && before.end.Reason == plan.Preempting && refusal.OfResources() {
			v.end = before.end // it was preempted, and there is still no room for it
		}
		return nil, p.refusePod(ctx, d, before.end, v, refusal.Message)
	}
	p.verdicts[uid] = verdict{end: before.end, freedAtDecision: made, reserved: pod, admitting: true}
	p.mu.Unlock()
	return nil, p.allocateDevices(ctx, d, made, before, known)
}

// maxNodeRead is the maximum time for which a pod waits until the Node was read.
const maxNodeRead = 5 * time.Second

// readNode reads the Node again, once for each decision, because a pod may come earlier than the label for which the scheduler has chosen
// this node. A kubelet does the same (https://github.com/kubernetes/kubernetes/pull/134445). If it returns true, it has unlocked p.mu, and
// the decision must be made again.
func (p *Pods) readNode(ctx context.Context, d desired.Pod, isFresh *bool) bool {
	if *isFresh || d.Source != desired.API || p.nodeReader == nil {
		return false
	}
	p.mu.Unlock()
	*isFresh = true
	bounded, cancel := context.WithTimeout(ctx, maxNodeRead)
	defer cancel()
	if err := p.nodeReader.Refresh(bounded); err != nil && ctx.Err() == nil {
		p.c.Log.Warn("the Node could not be read: the last known labels and taints decide about a pod", "pod", nameOf(d.Pod),
			"uid", d.Pod.UID, "error", err)
	}
	return true
}

// refusePod stores a refusal, puts it into effect and records an event. If the pod was refused for the same
// reason before, it neither stores the refusal nor records an event.
func (p *Pods) refusePod(ctx context.Context, d desired.Pod, before *plan.End, v verdict, message string) error {
	news := before == nil || before.Reason != v.end.Reason
	if news {
		if err := p.c.Store.Reject(ctx, d.Pod.UID, store.Admission{Reason: v.end.Reason, Message: v.end.Message}); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.verdicts[d.Pod.UID] = v
	if !v.lacksDevices {
		p.refusedCount++
	}
	p.wakeWatchers()
	p.mu.Unlock()
	if news {
		p.c.Admissions.CountRejection(v.end.Reason)
		p.c.Events.Pod(d.Pod, "", v1.EventTypeWarning, v.end.Reason, message)
		p.c.Log.Warn("refused a pod", "pod", nameOf(d.Pod), "uid", d.Pod.UID, "reason", v.end.Reason, "message", message)
	}
	return nil
}

// readmitPod admits a pod that was refused before. The pod does not run until the admission is stored. Otherwise
// the agent would end the pod after a restart. The resources that the pod requests are reserved during this
// time.
func (p *Pods) readmitPod(ctx context.Context, d desired.Pod, made uint64, before verdict) error {
	if err := p.c.Store.RemoveRejection(ctx, d.Pod.UID); err != nil {
		p.cancelAdmission(d.Pod.UID, before, true)
		return err
	}
	p.mu.Lock()
	v := admittedVerdict(d, made)
	v.readmitted = true
	p.verdicts[d.Pod.UID] = v
	p.wakeWatchers()
	p.mu.Unlock()
	p.c.Admissions.Admitted(d.Pod)
	p.c.Log.Info("admitted a pod that was refused before", "pod", nameOf(d.Pod), "uid", d.Pod.UID)
	return nil
}

// cancelAdmission restores the verdict of a pod whose admission failed. The resources that were reserved for
// this pod are free again, so the node decides again about refused pods.
func (p *Pods) cancelAdmission(uid types.UID, before verdict, known bool) {
	p.mu.Lock()
	if known {
		p.verdicts[uid] = before
	} else {
		delete(p.verdicts, uid)
	}
	p.wakeWatchers()
	p.mu.Unlock()
	p.retryDecisions(podTerminated)
}

// mustDecideAgain reports whether the node has to decide again about a refused pod, because a change after the refusal may
// have made room for it. A refused pod of the API server stays Failed, and its controller replaces it. The caller holds
// mu.
func (p *Pods) mustDecideAgain(d desired.Pod, v verdict) bool {
	if v.end == nil || d.Source == desired.API || v.freedAtDecision >= p.freedCount || p.c.ShuttingDown() {
		return false
	}
	return v.end.Reason != plan.Evicted || !p.c.IsBarred(d.Pod.UID)
}

// holders contains the pods for which resources are reserved.
type holders struct {
	staying []*admit.Holder // admitted pods that have not ended
	coming  []*admit.Holder // pods that are about to be admitted
	leaving []*admit.Holder // pods that are being ended
}

func (h holders) listHolders() []*admit.Holder { return slices.Concat(h.staying, h.coming, h.leaving) }

// collectHolders returns the pods for which resources are reserved, except the given pod. The caller holds mu.
func (p *Pods) collectHolders(except types.UID) (out holders) {
	for uid, v := range p.verdicts {
		holds := v.admitting || v.readmitted || (v.end == nil || v.ending) && !isTerminal(p.states[uid].status.Phase)
		if uid == except || !holds {
			continue
		}
		d, ok := p.c.Desired.Get(uid)
		if !ok {
			continue
		}
		v.reserved = v.currentHolder(d.Pod)
		p.verdicts[uid] = v
		switch {
		case v.admitting:
			out.coming = append(out.coming, v.reserved)
		case v.ending:
			out.leaving = append(out.leaving, v.reserved)
		default:
			out.staying = append(out.staying, v.reserved)
		}
	}
	return out
}

// NodeChanged must be called after a change of the node. The node then decides again about refused
// pods.
func (p *Pods) NodeChanged() { p.retryDecisions(nodeChanged) }

// retryDecisions is called when resources were released. It wakes the workers of refused pods and of pods with a deferred
// resize, so that the node decides about them again. The metric of accepted resizes shows the cause, which is the
// trigger.
func (p *Pods) retryDecisions(trigger string) {
	p.mu.Lock()
	p.freedCount++
	p.lastTrigger = trigger
	var again []types.UID
	for uid, v := range p.verdicts {
		d, ok := p.c.Desired.Get(uid)
		if ok && (v.end != nil && d.Source != desired.API || v.end == nil && p.mustDecideResize(d, v)) {
			again = append(again, uid)
		}
	}
	p.mu.Unlock()
	for _, uid := range again {
		p.c.Workers.Poke(uid)
	}
}
