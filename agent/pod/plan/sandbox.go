package plan

import (
	"cmp"
	"slices"
)

// newestSandbox returns the newest sandbox and whether containers may run in it.
func (p *planner) newestSandbox() (Sandbox, bool) {
	if len(p.Observed.Sandboxes) == 0 {
		return Sandbox{}, false
	}
	sb := slices.MaxFunc(p.Observed.Sandboxes, func(a, b Sandbox) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return sb, sb.Ready
}

// Sandbox returns the newest sandbox.
func (o Observed) Sandbox() (Sandbox, bool) {
	p := planner{Input: Input{Observed: o}}
	sb, _ := p.newestSandbox()
	return sb, len(o.Sandboxes) > 0
}

// replaceSandbox stops containers that are running although no sandbox is ready, and then runs the next sandbox. It
// cancels starts of containers in the lost sandbox, because their pulls would delay the next sandbox.
func (p *planner) replaceSandbox(newest Sandbox) {
	if len(p.Observed.Sandboxes) == 0 {
		p.startAction(Action{Op: RunSandbox, Hash: p.Spec})
		return
	}
	p.cancelActions(StartContainer)
	live := false
	for _, c := range p.Observed.Containers {
		if c.MayRun() {
			live = true
			p.stopContainer(c, Action{Grace: p.Grace, Interrupts: CutOff})
		}
	}
	if live {
		return
	}
	if at := newest.CreatedAt.Add(sandboxPause); p.isFuture(at, sandboxPause) {
		p.wakeAt(at)
		return
	}
	p.startAction(Action{Op: RunSandbox, Attempt: newest.Attempt + 1, Hash: p.Spec})
}

// stopStale stops ready sandboxes that are older than the newest one.
func (p *planner) stopStale(newest Sandbox) {
	for _, sb := range p.Observed.Sandboxes {
		if sb.ID != newest.ID && sb.Ready {
			p.startAction(Action{Op: StopSandbox, ID: sb.ID})
		}
	}
}

// removeStale removes replaced sandboxes that have no containers left. Removing a sandbox also removes its
// containers, whose exit codes and attempt numbers the plan needs.
func (p *planner) removeStale(newest Sandbox) {
	for _, sb := range p.Observed.Sandboxes {
		used := slices.ContainsFunc(p.Observed.Containers, func(c Container) bool { return c.SandboxID == sb.ID })
		if sb.ID != newest.ID && !sb.Ready && !used {
			p.startAction(Action{Op: RemoveSandbox, ID: sb.ID})
		}
	}
}
