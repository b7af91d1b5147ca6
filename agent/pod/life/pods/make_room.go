package pods

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
)

// preemptedMessage is a kubelet's message for a preempted pod.
const preemptedMessage = "Preempted in order to admit critical pod"

// makeRoom ends the pods that a critical pod preempts, waits until they have ended, and admits the critical
// pod. The decision to end pods is stored first, so that the preemption continues after a restart of the
// agent.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
func (p *Pods) makeRoom(ctx context.Context, d desired.Pod, s admit.Victims, node admit.Node, before verdict, known bool) error {
	uid := d.Pod.UID
	if err := p.preemptAll(ctx, s, d.Pod); err != nil {
		p.cancelAdmission(uid, before, known)
		return err
	}
	if err := p.awaitRoom(ctx, d, node); err != nil {
		p.cancelAdmission(uid, before, known)
		return err
	}
	p.mu.Lock()
	made, now := p.freedCount, p.verdicts[uid]
	p.mu.Unlock()
	if !now.admitting {
		return nil
	}
	return p.allocateDevices(ctx, d, made, before, known)
}

// preemptAll ends the selected pods, so that the critical pod can run.
func (p *Pods) preemptAll(ctx context.Context, s admit.Victims, critical *v1.Pod) error {
	for _, victim := range s.Pods {
		if err := p.preemptPod(ctx, victim.Pod, critical, string(s.Signal)); err != nil {
			return err
		}
	}
	return nil
}

// preemptPod ends a pod so that a critical pod can run. The phase of the preempted pod becomes Failed. A pod
// that is not from the API server runs again when there are resources for it.
func (p *Pods) preemptPod(ctx context.Context, pod, critical *v1.Pod, signal string) error {
	end := plan.End{Reason: plan.Preempting, Message: preemptedMessage}
	if err := p.c.Store.Reject(ctx, pod.UID, toAdmission(end)); err != nil {
		return err
	}
	p.mu.Lock()
	p.decideEnd(pod.UID, end)
	p.mu.Unlock()
	p.c.Events.Pod(pod, "", v1.EventTypeWarning, plan.Preempting, preemptedMessage)
	p.c.Log.Warn("preempting a pod for a critical pod",
		"pod", nameOf(pod), "uid", pod.UID, "critical", nameOf(critical), "for", signal)
	p.c.Admissions.CountPreemption(signal)
	p.c.Workers.Poke(pod.UID)
	return nil
}

// decideEnd sets the end of a running pod. Its resources stay reserved until it has ended. The caller holds mu.
func (p *Pods) decideEnd(uid types.UID, end plan.End) {
	v := p.verdicts[uid]
	p.verdicts[uid] = verdict{end: &end, freedAtDecision: p.freedCount, reserved: v.reserved, ending: true, alloc: v.alloc}
}

// toAdmission converts an end to the store's type.
func toAdmission(e plan.End) store.Admission {
	return store.Admission{Reason: e.Reason, Message: e.Message, Grace: e.Grace, Disrupted: e.Disrupted}
}

// awaitRoom waits until there are resources for a pod that is about to be admitted. It waits for the end of the
// preempted pods, but not longer than a kubelet waits. After this time it returns nil, and the pod is admitted although
// preempted pods are still running.
func (p *Pods) awaitRoom(ctx context.Context, d desired.Pod, node admit.Node) error {
	var late *time.Timer
	for {
		p.mu.Lock()
		me, news, h := p.verdicts[d.Pod.UID], p.changeSignal, p.collectHolders(d.Pod.UID)
		p.mu.Unlock()
		if !me.admitting || admit.Admit(me.reserved, h.listHolders(), node) == nil {
			return nil
		}
		if late == nil {
			late = time.NewTimer(preemptionTimeout(h.leaving))
			defer late.Stop()
		}
		select {
		case <-news:
		case <-late.C:
			p.c.Log.Warn("preempted pods did not end in time, starting the critical pod nevertheless",
				"pod", nameOf(d.Pod), "uid", d.Pod.UID)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// preemptionTimeout returns how long a kubelet waits for preempted pods to end.
func preemptionTimeout(leaving []*admit.Holder) time.Duration {
	most := 10 * time.Second
	for _, h := range leaving {
		grace := int64(v1.DefaultTerminationGracePeriodSeconds)
		if g := h.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = min(max(*g, 0), 1<<31)
		}
		most = max(most, time.Duration(grace)*time.Second*3/2)
	}
	return most
}
