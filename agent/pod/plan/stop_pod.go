package plan

import (
	"slices"

	"github.com/islet-edge/islet/internal/podspec"
)

// stopPod stops the pod: first the main, init and ephemeral containers, then the sidecars in reverse order
// (KEP-753), then the sandbox. All of them share the pod's grace period. All preStop hooks run at the beginning,
// including the hooks of sidecars that are stopped later. A sidecar that ends meanwhile is not restarted. The Interruption is
// zero if the pod is over.
func (p *planner) stopPod(why Interruption) {
	p.cancelActions(RunSandbox, StartContainer, PostStart, Update, Resize)
	if p.Want == nil || p.Deleting || p.End != nil {
		p.cancelActions(Allocate)
	}
	grace, until := p.remainingGrace()
	for subject, f := range p.InFlight { // the grace period may have been shortened; a new action then ends earlier
		end := f.Since.Add(f.Grace)
		if f.Op == StopContainer && end.After(p.Now.Add(grace)) || f.Op == PreStop && end.After(until) {
			p.Cancel = append(p.Cancel, subject)
		}
	}
	var live []Container
	turn := -1
	for _, c := range p.Observed.Containers {
		if c.MayRun() {
			live = append(live, c)
			turn = max(turn, p.stopOrder(c.Name))
		}
	}
	for _, c := range live {
		at := p.stopOrder(c.Name)
		switch mine := at == turn || at == anyTime || !p.Now.Before(until); {
		case p.Stopping.IsZero() && mine: // the container starts again in another sandbox
			p.stopContainer(c, Action{Grace: p.Grace, Interrupts: why})
		case p.preStop(c, until, why):
		case mine:
			p.startAction(Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: grace, Interrupts: why})
		}
	}
	if len(live) > 0 {
		return
	}
	for _, sb := range p.Observed.Sandboxes {
		if sb.Ready {
			p.startAction(Action{Op: StopSandbox, ID: sb.ID})
		}
	}
}

// anyTime is the stop order of a container that may be stopped at any time, because no other
// container depends on it.
const anyTime = -1

// stopOrder returns a number for the order in which containers are stopped, the highest number first.
func (p *planner) stopOrder(name string) int {
	if p.Want == nil {
		return 0
	}
	for i := range p.Want.Spec.InitContainers {
		if ctr := &p.Want.Spec.InitContainers[i]; ctr.Name == name && podspec.IsSidecar(ctr) {
			return i
		}
	}
	if kind, _ := podspec.Find(&p.Want.Spec, name); kind == podspec.Ephemeral {
		return anyTime
	}
	return len(p.Want.Spec.InitContainers)
}

// isRunning reports whether a sandbox is ready, or a container is or may be running.
func (p *planner) isRunning() bool {
	ready := func(sb Sandbox) bool { return sb.Ready }
	return slices.ContainsFunc(p.Observed.Sandboxes, ready) || slices.ContainsFunc(p.Observed.Containers, Container.MayRun)
}
