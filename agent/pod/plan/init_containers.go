package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// runInits runs the init containers in order. It restarts the sidecars among them when they end. It returns true if
// the main containers may run. Initialization is complete when a main container has been created in this sandbox. An init container
// that was created in this sandbox does not wait again for the sidecars before it, even if one of them is in back-off now.
func (p *planner) runInits(sb Sandbox) bool {
	inits := p.Want.Spec.InitContainers
	over := MainContainerCreated(p.Input, sb)
	for i := range inits {
		ctr := &inits[i]
		c, ok := p.Observed.Newest(ctr.Name)
		switch {
		case podspec.IsSidecar(ctr):
			p.ensureContainer(ctr, sb, true)
			if !over && !(c.SandboxID == sb.ID && IsStarted(p.Input, c)) && !anyCreated(p.Input, inits[i+1:], sb) {
				return false
			}
		case over || ok && c.SandboxID == sb.ID && c.Round == p.round && Completed(p.Input, c):
		default:
			p.ensureContainer(ctr, sb, false)
			return false
		}
	}
	return true
}

// MainContainerCreated reports whether a main container was created in the sandbox, in the current round of
// the pod; see CurrentRound.
func MainContainerCreated(in Input, sb Sandbox) bool {
	return anyCreated(in, in.Want.Spec.Containers, sb)
}

// anyCreated reports whether a container of the list was created in the sandbox, in the current round of the pod.
func anyCreated(in Input, list []v1.Container, sb Sandbox) bool {
	round := CurrentRound(in)
	for i := range list {
		if c, ok := in.Observed.Newest(list[i].Name); ok && c.SandboxID == sb.ID && c.Round == round {
			return true
		}
	}
	return false
}

// IsStarted reports whether a container is running, its postStart hook has returned and its startup probe has passed.
func IsStarted(in Input, c Container) bool {
	if f, busy := in.InFlight[c.Name]; busy && f.Op == StartContainer {
		return false
	}
	h, probed := in.Health[c.ID]
	return c.State == Running && !PostStartRunning(in, c) && (!probed || h.Started)
}
