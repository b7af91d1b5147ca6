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

// preempted is the kubelet's sentence about a pod that made room.
const preempted = "Preempted in order to admit critical pod"

// makeRoom ends the pods that have to go so that a critical one, which is coming, may run,
// waits until they are gone, and admits it. The order survives an agent that is killed:
// first it is stored that they end, and the next agent finds them on their way.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
func (p *Pods) makeRoom(ctx context.Context, d desired.Pod, s admit.Sacrifice, node admit.Node, before verdict, known bool) error {
	uid := d.Pod.UID
	if err := p.preemptAll(ctx, s, d.Pod); err != nil {
		p.giveUp(uid, before, known)
		return err
	}
	if err := p.awaitRoom(ctx, d, node); err != nil {
		p.giveUp(uid, before, known)
		return err
	}
	p.mu.Lock()
	made, now := p.freed, p.verdicts[uid]
	p.mu.Unlock()
	if !now.coming {
		return nil
	}
	return p.equip(ctx, d, made, before, known)
}

// preemptAll ends the pods that make room for a critical one.
func (p *Pods) preemptAll(ctx context.Context, s admit.Sacrifice, critical *v1.Pod) error {
	for _, victim := range s.Pods {
		if err := p.preempt(ctx, victim.Pod, critical, string(s.Signal)); err != nil {
			return err
		}
	}
	return nil
}

// preempt ends a pod for a critical one: it will be Failed, and one that is not the API
// server's comes back when there is room.
func (p *Pods) preempt(ctx context.Context, pod, critical *v1.Pod, signal string) error {
	end := plan.End{Reason: plan.Preempting, Message: preempted}
	if err := p.c.Store.Reject(ctx, pod.UID, admission(end)); err != nil {
		return err
	}
	p.mu.Lock()
	p.leave(pod.UID, end)
	p.mu.Unlock()
	p.c.Events.Pod(pod, "", v1.EventTypeWarning, plan.Preempting, preempted)
	p.c.Log.Warn("pod ends to make room for a critical one", "pod", nameOf(pod), "uid", pod.UID, "critical", nameOf(critical), "for", signal)
	p.c.Preempted(signal)
	p.c.Workers.Poke(pod.UID)
	return nil
}

// leave ends a pod that runs: until that is over it holds what it has. The caller holds mu.
func (p *Pods) leave(uid types.UID, end plan.End) {
	v := p.verdicts[uid]
	p.verdicts[uid] = verdict{end: &end, made: p.freed, held: v.held, leaves: true, alloc: v.alloc}
}

// admission is how the store has an end.
func admission(e plan.End) store.Admission {
	return store.Admission{Reason: e.Reason, Message: e.Message, Grace: e.Grace, Disrupted: e.Disrupted}
}

// awaitRoom waits until a coming pod fits, or those that leave have had the time to end
// that a kubelet gives them: then it is admitted beside them.
func (p *Pods) awaitRoom(ctx context.Context, d desired.Pod, node admit.Node) error {
	var late *time.Timer
	for {
		p.mu.Lock()
		me, news, h := p.verdicts[d.Pod.UID], p.news, p.holders(d.Pod.UID)
		p.mu.Unlock()
		if !me.coming || admit.Admit(me.held, h.all(), node) == nil {
			return nil
		}
		if late == nil {
			late = time.NewTimer(patience(h.leaving))
			defer late.Stop()
		}
		select {
		case <-news:
		case <-late.C:
			p.c.Log.Warn("what makes room for a critical pod does not end in time, so it starts beside that", "pod", nameOf(d.Pod), "uid", d.Pod.UID)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// patience is how long a kubelet waits for the end of pods that it preempts.
func patience(leaving []*admit.Holder) time.Duration {
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
