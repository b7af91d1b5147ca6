package plan

import (
	"slices"
	"time"
)

// Decide returns the actions that a pod needs. It returns the same Decision for the same Input.
func Decide(in Input) Decision {
	p := planner{Input: in}
	if in.Want != nil {
		p.round = CurrentRound(in)
	}
	sb, ready := p.newestSandbox()
	p.dropHooks()
	if !in.Hold && !in.shutsDown() {
		p.cancelActions(Unmount)
	}
	switch {
	case in.Hold:
	case in.Want == nil || in.Deleting:
		p.stopPod(0)
		p.removePod()
	case in.shutsDown():
		p.cancelActions(Admit, Ended, Forget)
		p.stopPod(CutOff)
		p.removeUnneeded()
		if !p.isRunning() && !p.Unmounted {
			p.startAction(Action{Op: Unmount})
		}
	case in.End != nil || IsFinished(in) || p.checkDeadline():
		p.stopPod(p.endInterruption())
		p.removeUnneeded()
		p.afterEnd()
	case in.Waiting:
		p.cancelActions(Admit, Allocate, Update, Resize, Ended, Forget)
	case !in.Admitted:
		p.cancelActions(Allocate, Update, Resize, Ended, Forget)
		p.startAction(Action{Op: Admit})
	case !ready:
		p.cancelActions(Update, Resize, Ended, Forget)
		p.startAllocate()
		p.replaceSandbox(sb)
	case sb.ID == in.Stale:
		p.cancelActions(Ended, Forget)
		p.startAllocate()
		// The containers are stopped in order while the network still works. The sandbox is replaced after that.
		p.stopPod(Replaced)
	default:
		p.cancelActions(Ended, Forget)
		p.startAllocate()
		p.startUpdate()
		p.startResize(sb)
		p.stopStale(sb)
		p.startEphemeral(sb)
		if p.stopEarlierRound() && p.runInits(sb) {
			p.runMains(sb)
		}
		p.removeUnneeded()
		p.removeStale(sb)
	}
	slices.Sort(p.Cancel)
	p.Cancel = slices.Compact(p.Cancel)
	return p.Decision
}

type planner struct {
	Input
	Decision
	round   uint32 // see CurrentRound
	blocked bool   // no container starts while the postStart hook of an earlier one is running
}

// Newest returns the newest container with the given name. It is not inlined, because copies would enlarge the program.
//
//go:noinline
func (o Observed) Newest(name string) (c Container, ok bool) {
	for _, x := range o.Containers {
		if x.Name == name && (!ok || x.Attempt > c.Attempt) {
			c, ok = x, true
		}
	}
	return c, ok
}

// LastExited returns the newest container with the given name that has ended. Like Newest, it is not inlined.
//
//go:noinline
func (o Observed) LastExited(name string) (c Container, ok bool) {
	for _, x := range o.Containers {
		if x.Name == name && x.State == Exited && (!ok || x.Attempt > c.Attempt) {
			c, ok = x, true
		}
	}
	return c, ok
}

// startAction adds an action. It does nothing if another action on the same subject is in flight, or if the subject
// must wait after a failure. An action on the pod itself starts only while no other action is in flight, with
// two exceptions. Update and Resize do not wait for hooks, which may never return. Allocate never waits.
func (p *planner) startAction(a Action) {
	if _, busy := p.InFlight[a.Container]; busy {
		return
	}
	if _, busy := p.InFlight[""]; busy || a.Container == "" && p.mustWait(a.Op) {
		return
	}
	for _, b := range p.Start {
		if b.Container == a.Container || b.Container == "" || a.Container == "" {
			return
		}
	}
	if p.blocked && a.Op == StartContainer {
		return
	}
	if f, ok := p.Failed[Key{a.Container, a.Op}]; ok && p.Now.Before(f.Retry) && f.ID == a.Target {
		p.wakeAt(f.Retry)
		switch at := f.At.Add(PullSettle); {
		case f.Reason == ErrImagePull && p.Now.Before(at):
			p.wakeAt(at)
		case f.Reason == ErrImagePull:
			p.addNotice(a.Container, ImagePullBackOff, f.N)
		}
		return
	}
	a.Interrupts = p.interruptionOf(a)
	p.Start = append(p.Start, a)
}

// mustWait reports whether an action in flight delays an action on the pod itself.
func (p *planner) mustWait(op Op) bool {
	for _, f := range p.InFlight {
		hooks := f.Op == PostStart || f.Op == PreStop
		if op != Allocate && !(hooks && (op == Update || op == Resize)) {
			return true
		}
	}
	return false
}

// startUpdate starts Update if the current spec has not been passed to the hooks. Update cannot run at the same time as
// actions on containers, so Decide adds it before them.
func (p *planner) startUpdate() {
	if p.Applied != "" && p.Applied != p.Spec {
		p.startAction(Action{Op: Update, Hash: p.Spec})
	}
	for subject, f := range p.InFlight {
		if f.Op == Update && f.Hash != p.Spec {
			p.Cancel = append(p.Cancel, subject)
		}
	}
}

// cancelActions cancels the actions of the given kinds that are in flight.
func (p *planner) cancelActions(ops ...Op) {
	for subject, f := range p.InFlight {
		if slices.Contains(ops, f.Op) {
			p.Cancel = append(p.Cancel, subject)
		}
	}
}

func (p *planner) addNotice(container, reason string, n int) {
	p.Notices = append(p.Notices, Notice{container, reason, n})
}

func (p *planner) wakeAt(at time.Time) {
	if p.Wake.IsZero() || at.Before(p.Wake) {
		p.Wake = at
	}
}
