package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// Devices allocates devices, and exclusive CPUs and memory, to pods when they are admitted. *device.Devices implements it.
type Devices interface {
	// NeedsAllocation reports whether a pod requests devices that it does not have.
	NeedsAllocation(*v1.Pod) bool
	// Admit allocates the devices. If it refuses the pod, it returns a kubelet's reason and message. An error
	// means that there is no decision.
	Admit(context.Context, *v1.Pod) (reason, refusal string, err error)
}

type noDevices struct{}

func (noDevices) NeedsAllocation(*v1.Pod) bool { return false }
func (noDevices) Admit(context.Context, *v1.Pod) (string, string, error) {
	return "", "", nil
}

// allocateDevices allocates the devices of a pod that is about to be admitted, and then admits it. It may wait for a
// device plugin. During this time, the node decides about other pods.
func (p *Pods) allocateDevices(ctx context.Context, d desired.Pod, made uint64, before verdict, known bool) error {
	uid := d.Pod.UID
	p.mu.Lock()
	refused := p.refusedCount
	p.mu.Unlock()
	reason, refusal, err := p.c.Devices.Admit(ctx, d.Pod)
	if err != nil {
		p.cancelAdmission(uid, before, known)
		return err
	}
	if refusal != "" {
		p.mu.Lock()
		others := p.refusedCount != refused
		p.mu.Unlock()
		if others { // they may have been refused because resources were reserved for this pod
			p.retryDecisions(podTerminated)
			made++
		}
		end := &plan.End{Reason: reason, Message: "Pod was rejected: " + refusal}
		return p.refusePod(ctx, d, before.end, verdict{end: end, freedAtDecision: made, lacksDevices: true}, refusal)
	}
	if known {
		return p.readmitPod(ctx, d, made, before)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, ok := p.verdicts[uid]; ok && now.admitting {
		v := admittedVerdict(d, made)
		v.reserved = now.reserved
		p.verdicts[uid] = v
		p.wakeWatchers()
		p.c.Admissions.Admitted(d.Pod)
	}
	return nil
}
