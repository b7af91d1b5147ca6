package pods

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// Devices are given to pods when they are admitted, as are CPUs and memory that only one
// container has. *device.Manager is one, *pinning.Manager too.
type Devices interface {
	// Wants reports whether a pod asks for devices that it does not have.
	Wants(*v1.Pod) bool
	// Admit gives it those, or says in a kubelet's words why it cannot have them. An error
	// means that nothing was decided.
	Admit(context.Context, *v1.Pod) (reason, refusal string, err error)
}

type noDevices struct{}

func (noDevices) Wants(*v1.Pod) bool { return false }
func (noDevices) Admit(context.Context, *v1.Pod) (string, string, error) {
	return "", "", nil
}

// equip gives a pod that is coming its devices, then admits it. Whoever has them may take
// his time: nobody else waits.
func (p *Pods) equip(ctx context.Context, d desired.Pod, made uint64, before verdict, known bool) error {
	uid := d.Pod.UID
	p.mu.Lock()
	refused := p.refused
	p.mu.Unlock()
	reason, refusal, err := p.c.Devices.Admit(ctx, d.Pod)
	if err != nil {
		p.giveUp(uid, before, known)
		return err
	}
	if refusal != "" {
		p.mu.Lock()
		others := p.refused != refused
		p.mu.Unlock()
		if others { // perhaps for this one
			p.release(podTerminated)
			made++
		}
		return p.refuse(ctx, d, before.end, verdict{end: &plan.End{Reason: reason, Message: "Pod was rejected: " + refusal}, made: made, unequipped: true}, refusal)
	}
	if known {
		return p.readmit(ctx, d, made, before)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, ok := p.verdicts[uid]; ok && now.coming {
		v := admitted(d, made)
		v.held = now.held
		p.verdicts[uid] = v
		p.tell()
	}
	return nil
}
