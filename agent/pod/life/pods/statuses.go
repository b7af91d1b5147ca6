package pods

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podspec"
)

// StatusChanged makes Run compute the status of a pod again. It does not block.
func (p *Pods) StatusChanged(uid types.UID) { p.dirty.Add(uid) }

// Run computes the statuses of the pods for which StatusChanged was called. It returns when ctx ends.
func (p *Pods) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.dirty.Wake():
		}
		for _, uid := range p.dirty.TakeAll() {
			p.refreshStatus(uid)
		}
	}
}

// refreshStatus computes the status of a pod from the input of its worker's last round.
func (p *Pods) refreshStatus(uid types.UID) {
	in := p.c.Workers.Input(uid)
	p.recordVersion(uid, in)
	freed := p.updateStatus(uid, in)
	if e := in.End; e != nil && e.Reason == plan.Evicted && e.Phase == "" && in.Want != nil {
		p.finishEviction(in.Want)
	}
	if freed != "" {
		p.retryDecisions(freed)
	}
}

// isCurrent reports whether a worker's input is about the present life of the pod. It returns false if the worker has
// had no round since the pod was first wanted, or since it was wanted again under the same UID.
func isCurrent(in plan.Input, d desired.Pod) bool {
	return in.Want != nil && in.Lives == uint32(d.Lives)
}

// updateStatus computes the status from a worker's input, and stores and sends the status if it has changed. If the pod
// has released resources, it returns the cause, which the caller passes to retryDecisions. Otherwise it returns an
// empty string.
func (p *Pods) updateStatus(uid types.UID, in plan.Input) (freed string) {
	host := p.c.Host()
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.states[uid]
	d, wanted := p.c.Desired.Get(uid)
	if !wanted {
		if known {
			p.recordResolved(in, &before.status, nil)
			delete(p.states, uid)
			p.wakeWatchers()
		}
		return ""
	}
	if !isCurrent(in, d) {
		return "" // the worker calls StatusChanged again in its next round
	}
	p.clearReadmission(uid, in)
	if !known && isUndecided(in) {
		return "" // a status would be Pending now, and Failed a moment later if the node refuses the pod
	}
	stored := before.status
	if in.End != nil && hasServerMore(known, &before.status, in.Want) {
		before.status = in.Want.Status // it may have ended before this node first saw it
	}
	now := state{status: computeStatus(in, before.status, host), computedFor: in.Want, version: p.version + 1}
	if in.Deleting {
		now.stopRequested = in.Stopping
	}
	v, decided := p.verdicts[uid]
	if decided && p.recordResizeEvents(in, v, &before.status, &now.status) {
		freed = podResized
	}
	if known && now.stopRequested.Equal(before.stopRequested) && equality.Semantic.DeepEqual(stored, now.status) {
		if before.computedFor != in.Want { // only the pod's metadata or spec has changed, or the stored status was right
			p.setState(uid, now)
		}
		return freed
	}
	p.c.OnStatus(in, &before.status, &now.status)
	p.recordResolved(in, &before.status, &now.status)
	p.setState(uid, now)
	p.sendStatus(uid, &now.status)
	if err := p.c.Store.PutStatus(uid, &now.status); err != nil {
		p.c.Log.Warn("cannot store the status of a pod", "pod", nameOf(in.Want), "uid", uid, "error", err)
	}
	if decided && (v.end == nil || v.ending) && isTerminal(now.status.Phase) && !isTerminal(before.status.Phase) {
		return podTerminated
	}
	return freed
}

// computeStatus returns the status of a pod.
func computeStatus(in plan.Input, before v1.PodStatus, host status.Host) v1.PodStatus {
	if isServersAlone(in.Want) {
		return in.Want.Status
	}
	return status.Compute(in, before, host)
}

// isServersAlone reports whether only the API server has the complete status of a pod: the pod has ended, and is too large for the node.
// The node must not send a status, because it does not know the containers.
func isServersAlone(p *v1.Pod) bool { return podspec.IsTooLarge(p) && isTerminal(p.Status.Phase) }

// hasServerMore reports whether the API server knows more about the end of a pod than this node does. There are two cases. First, the node
// does not know the pod. Second, the pod was too large for the node, so that the node has stored no container statuses, but the API
// server's version of the pod has them. The node must not remove these container statuses. A pod that the node rejected has no container
// statuses at the API server.
func hasServerMore(known bool, before *v1.PodStatus, p *v1.Pod) bool {
	more := len(before.ContainerStatuses) == 0 && len(p.Status.ContainerStatuses) > 0
	return !known || isTerminal(p.Status.Phase) && more && !isServersAlone(p)
}

// rewriteStatuses stores all statuses again.
func (p *Pods) rewriteStatuses(context.Context) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, s := range p.states {
		err = errors.Join(err, p.c.Store.PutStatus(uid, &s.status))
	}
	return err
}

// setState replaces the state of a pod and wakes the watchers. The caller holds mu.
func (p *Pods) setState(uid types.UID, s state) {
	p.version = s.version
	p.states[uid] = s
	p.wakeWatchers()
}

// clearReadmission removes the mark that a pod was admitted after a refusal. It does so when the pod's worker has seen the
// admission. The caller holds mu.
func (p *Pods) clearReadmission(uid types.UID, in plan.Input) {
	if v, ok := p.verdicts[uid]; ok && v.readmitted && in.Admitted {
		v.readmitted = false
		p.verdicts[uid] = v
	}
}

// isUndecided reports whether the node has not decided about a new pod yet.
func isUndecided(in plan.Input) bool {
	return !in.Admitted && in.End == nil && !in.Deleting && !in.Waiting && len(in.Observed.Sandboxes)+len(in.Observed.Containers) == 0
}

// sendStatus puts the status of a pod into the outbox, unless the API server knows more than the node. The status of a static pod that
// waits for the end of an earlier pod is not sent yet, because the mirror pod still belongs to the earlier pod. The node does not know the
// containers of a pod that is too large and waits. The caller holds mu.
func (p *Pods) sendStatus(uid types.UID, s *v1.PodStatus) {
	if p.outbox == nil {
		return
	}
	d, ok := p.c.Desired.Get(uid)
	if ok && !isServersAlone(d.Pod) && (d.Predecessor == "" || d.Source == desired.API && !podspec.IsTooLarge(d.Pod)) {
		p.outbox.Put(d.Pod, s)
	}
}
