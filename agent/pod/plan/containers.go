package plan

import v1 "k8s.io/api/core/v1"

// runMains starts the main containers, and restarts containers that have ended if necessary. The containers
// start concurrently. However, while a container with a postStart hook is starting, the containers after it
// wait, as with a kubelet.
func (p *planner) runMains(sb Sandbox) {
	for i := range p.Want.Spec.Containers {
		ctr := &p.Want.Spec.Containers[i]
		c, ok := p.Observed.Newest(ctr.Name)
		if ok && c.State == Exited && c.Round == p.round && !WillRestart(p.Input, ctr, c) {
			continue
		}
		p.ensureContainer(ctr, sb, true)
		p.blocked = p.blocked || p.startsWithHook(ctr)
	}
	p.blocked = false
}

// ensureContainer starts a container, restarts it, or stops it if it is unhealthy or outdated.
func (p *planner) ensureContainer(ctr *v1.Container, sb Sandbox, replace bool) {
	if f, busy := p.InFlight[ctr.Name]; busy && f.Op == StartContainer && f.Hash != Hash(ctr) {
		p.Cancel = append(p.Cancel, ctr.Name)
	}
	switch c, exists := p.Observed.Newest(ctr.Name); {
	case !exists:
		p.startAction(Action{Op: StartContainer, Container: ctr.Name, Attempt: p.Lives, Round: p.round, Hash: Hash(ctr)})
	case c.MayRun():
		p.keepOrStop(ctr, c, sb, replace)
	default:
		p.startAgain(ctr, c, sb)
	}
}

// keepOrStop lets a container run or stops it. If replace is false, it does not stop a container because of a changed
// definition or a resize. This is the case for init containers that run to completion. The first matching case applies.
// Cases in which the container runs again come first. In these cases its end is not counted as a crash, and its restart
// policy does not matter.
func (p *planner) keepOrStop(ctr *v1.Container, c Container, sb Sandbox, replace bool) {
	switch {
	case c.State != Running || c.SandboxID != sb.ID: // the runtime lost the container or its sandbox
		p.stopContainer(c, Action{Grace: p.Grace, Interrupts: CutOff})
	case replace && DefinitionChanged(ctr, c):
		p.stopContainer(c, Action{Grace: p.Grace, Hash: Hash(ctr), Interrupts: Replaced})
	case replace && ResizeNeedsRestart(p.Input, c):
		p.stopContainer(c, Action{Grace: p.Grace, Interrupts: Replaced})
	case p.RestartRequested(c):
		p.stopContainer(c, Action{Grace: p.Requested[c.Name].Grace, Interrupts: Replaced})
	case p.Health[c.ID].Unhealthy && restartPolicy(p.Want, ctr) == v1.RestartPolicyOnFailure:
		p.stopContainer(c, Action{Grace: p.unhealthyGrace(ctr, c), Interrupts: Replaced})
	case p.Health[c.ID].Unhealthy:
		p.stopContainer(c, Action{Grace: p.unhealthyGrace(ctr, c)})
	case HookFailed(p.Input, c):
		p.stopContainer(c, Action{Grace: p.Grace})
	case p.ranPreStop(c), p.Interrupted[c.ID] != 0: // the reason for the stop is gone, but the stop has begun
		p.stopContainer(c, Action{Grace: p.Grace, Interrupts: CutOff})
	case PostStartRunning(p.Input, c):
		p.startAction(Action{Op: PostStart, Container: c.Name, ID: c.ID})
	}
}

// startAgain starts a container that is not running. The first matching case applies.
func (p *planner) startAgain(ctr *v1.Container, c Container, sb Sandbox) {
	here, changed := c.SandboxID == sb.ID, DefinitionChanged(ctr, c) || ResizeNeedsRestart(p.Input, c)
	start := Action{Op: StartContainer, Container: c.Name, Attempt: c.Attempt + 1, Round: p.round, Hash: Hash(ctr)}
	switch {
	case c.State == Created && here && !changed && c.Round == p.round && p.Failed[Key{c.Name, StartContainer}].N == 0:
		// An earlier agent created the container, but ended before it started the container. If the start fails, the
		// container is kept until the next attempt exists, so that its attempt number is not reused.
		start.Attempt, start.Streak = c.Attempt, c.Streak
		p.startAction(start)
	// Crashes of another definition are not counted, nor are crashes before a restart that a user requested.
	case changed, p.RestartRequested(c):
		p.startAction(start)
	case c.State == Exited && here && p.backsOff(c):
	default:
		start.Streak = streakIn(sb.ID, c)
		p.startAction(start)
	}
}

// backsOff reports whether a container that has ended is in crash back-off.
func (p *planner) backsOff(c Container) bool {
	at, delay := NextStart(c, p.CrashMax)
	if p.isFuture(at, delay) {
		p.wakeAt(at)
		if !endedWithShim(c) {
			p.addNotice(c.Name, CrashLoopBackOff, int(c.Attempt))
		}
		return true
	}
	return false
}

// IsFinished reports whether the pod has run to completion: either an init container has failed and will not restart,
// or all main containers have ended and will not restart. Containers of an earlier round do not count; see CurrentRound.
func IsFinished(in Input) bool { return hasFinished(in, CurrentRound(in), countAll) }

func countAll(Container) bool { return true }

// hasFinished is like IsFinished for a round of the pod. It counts only those containers that have ended for which
// counts returns true.
func hasFinished(in Input, round uint32, counts func(Container) bool) bool {
	for i := range in.Want.Spec.InitContainers {
		c, ended := endedForGood(in, &in.Want.Spec.InitContainers[i], round)
		if ended && !Completed(in, c) && counts(c) {
			return true
		}
	}
	return mainsEnded(in, round, counts)
}

// endedForGood returns the newest container of a definition. It reports whether this container has exited in the given or a later round,
// and will not restart.
func endedForGood(in Input, ctr *v1.Container, round uint32) (Container, bool) {
	c, ok := in.Observed.Newest(ctr.Name)
	return c, ok && c.State == Exited && c.Round >= round && !WillRestart(in, ctr, c)
}

// mainsEnded reports whether all main containers have ended. It returns false for a pod without containers, whose spec is too large for the
// node: that pod must still be rejected.
func mainsEnded(in Input, round uint32, counts func(Container) bool) bool {
	for i := range in.Want.Spec.Containers {
		if c, ended := endedForGood(in, &in.Want.Spec.Containers[i], round); !ended || !counts(c) {
			return false
		}
	}
	return len(in.Want.Spec.Containers) > 0
}
