package plan

import (
	"slices"

	"github.com/islet-edge/islet/internal/podspec"
)

// stopPod stops the pod: first the main, init and ephemeral containers, then the sidecars in reverse order
// (KEP-753), then the sandbox. All of them share the pod's grace period. All preStop hooks run at the beginning,
// including those of sidecars that are stopped later. A sidecar that ends meanwhile is not restarted.
func (p *planner) stopPod() {
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
			p.stopContainer(c, Action{Grace: p.Grace})
		case p.preStop(c, until):
		case mine:
			p.startAction(Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: grace})
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

// removePod removes the stopped containers, and after them the sandboxes.
func (p *planner) removePod() {
	p.cancelActions(Admit, Ended)
	if p.isRunning() {
		return
	}
	for _, c := range p.Observed.Containers {
		p.startAction(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
	}
	if len(p.Observed.Containers) > 0 {
		return
	}
	for _, sb := range p.Observed.Sandboxes {
		p.startAction(Action{Op: RemoveSandbox, ID: sb.ID})
	}
	switch {
	case len(p.Observed.Sandboxes) > 0:
	case !p.Forgotten:
		p.startAction(Action{Op: Forget})
	default:
		p.Done = len(p.InFlight) == 0
	}
}

// afterEnd releases the resources of a pod that has ended and is still wanted. After that, it starts another
// Admit if the reason of the pod's End may no longer apply.
func (p *planner) afterEnd() {
	p.cancelActions(Forget)
	if p.isRunning() {
		return
	}
	if !p.Ended {
		p.startAction(Action{Op: Ended})
		return
	}
	if p.removesLogs() {
		for _, c := range p.Observed.Containers {
			p.startAction(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID})
		}
	}
	if p.End != nil && p.Reconsider && !p.Waiting {
		p.startAction(Action{Op: Admit})
	}
}

// removesLogs reports whether the containers and logs of an ended pod must be removed. This is the case for
// an evicted pod whose final status is known, because an evicted pod has usually used too much of a resource.
func (p *planner) removesLogs() bool {
	return p.End != nil && p.End.Reason == Evicted && p.End.Phase != ""
}

// isRunning reports whether a sandbox is ready, or a container is or may be running.
func (p *planner) isRunning() bool {
	ready := func(sb Sandbox) bool { return sb.Ready }
	return slices.ContainsFunc(p.Observed.Sandboxes, ready) || slices.ContainsFunc(p.Observed.Containers, Container.MayRun)
}

// removeUnneeded removes containers that are needed neither for the status nor for logs. For each name it keeps the
// newest container. It also keeps as many older containers that have ended as DeadLimit allows. The default is one.
func (p *planner) removeUnneeded() {
	for _, c := range p.Observed.Containers {
		newest, _ := p.Observed.Newest(c.Name)
		if c.ID == newest.ID || p.keepsContainer(c, newest) {
			continue
		}
		op := RemoveContainer
		if c.MayRun() {
			op = StopContainer
		}
		p.startAction(Action{Op: op, Container: c.Name, ID: c.ID, Grace: p.Grace})
	}
}

// keepsContainer reports whether an older container that has ended is kept. Until the newest container is
// running, at least one older container is kept.
func (p *planner) keepsContainer(c, newest Container) bool {
	if c.State != Exited {
		return false
	}
	most := 1 + p.DeadLimit.More
	if newest.State != Running {
		most = max(most, 1)
	}
	if at := c.FinishedAt.Add(p.DeadLimit.MinAge); p.isFuture(at, p.DeadLimit.MinAge) {
		p.wakeAt(at)
		return true
	}
	newer := 0
	for _, o := range p.Observed.Containers {
		if o.Name == c.Name && o.State == Exited && o.Attempt > c.Attempt {
			newer++
		}
	}
	return newer < most
}
