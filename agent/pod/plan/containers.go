package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// runInits runs the init containers in order. It restarts the sidecars among them when they end. It returns true if
// the main containers may run. Initialization is complete when a main container has been created in this sandbox.
func (p *planner) runInits(sb Sandbox) bool {
	over := MainContainerCreated(p.Input, sb)
	for i := range p.Want.Spec.InitContainers {
		ctr := &p.Want.Spec.InitContainers[i]
		c, ok := p.Observed.Newest(ctr.Name)
		switch {
		case podspec.IsSidecar(ctr):
			p.ensureContainer(ctr, sb, true)
			if !over && !(c.SandboxID == sb.ID && IsStarted(p.Input, c)) {
				return false
			}
		case over || ok && c.SandboxID == sb.ID && c.Round == p.round && c.State == Exited && c.ExitCode == 0:
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
	round := CurrentRound(in)
	return slices.ContainsFunc(in.Want.Spec.Containers, func(ctr v1.Container) bool {
		c, ok := in.Observed.Newest(ctr.Name)
		return ok && c.SandboxID == sb.ID && c.Round == round
	})
}

// IsStarted reports whether a container is running, its postStart hook has returned and its startup probe has passed.
func IsStarted(in Input, c Container) bool {
	if f, busy := in.InFlight[c.Name]; busy && f.Op == StartContainer {
		return false
	}
	h, probed := in.Health[c.ID]
	return c.State == Running && !PostStartRunning(in, c) && (!probed || h.Started)
}

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
		p.stopContainer(c, Action{Grace: p.Grace})
	case replace && DefinitionChanged(ctr, c):
		p.stopContainer(c, Action{Grace: p.Grace, Hash: Hash(ctr)})
	case replace && ResizeNeedsRestart(p.Input, c):
		p.stopContainer(c, Action{Grace: p.Grace, RunsAgain: true})
	case p.RestartRequested(c):
		p.stopContainer(c, Action{Grace: p.Requested[c.Name].Grace})
	case p.Health[c.ID].Unhealthy:
		p.stopContainer(c, Action{Grace: p.unhealthyGrace(ctr, c), RunsAgain: restartPolicy(p.Want, ctr) == v1.RestartPolicyOnFailure})
	case HookFailed(p.Input, c), p.ranPreStop(c):
		p.stopContainer(c, Action{Grace: p.Grace})
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

// IsReplaced reports whether a container was stopped only in order to run again.
func (in Input) IsReplaced(c Container) bool {
	id, ok := in.Replaced[c.Name]
	return ok && id == c.ID
}

// RestartRequested reports whether a user has requested a restart of the container.
func (in Input) RestartRequested(c Container) bool {
	ask, ok := in.Requested[c.Name]
	return ok && ask.ID == c.ID
}

// WillRestart reports whether a container that has ended runs again.
func WillRestart(in Input, ctr *v1.Container, c Container) bool {
	if in.IsReplaced(c) || in.RestartRequested(c) || CutOff(in, ctr, c) {
		return true
	}
	switch ruleAction(ctr, c.ExitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	switch restartPolicy(in.Want, ctr) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return c.ExitCode != 0
	}
	return true
}

// restartPolicy returns the restart policy of the container. If the container has none, it returns the
// pod's restart policy.
func restartPolicy(pod *v1.Pod, ctr *v1.Container) v1.RestartPolicy {
	if ctr.RestartPolicy != nil {
		return v1.RestartPolicy(*ctr.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// RestartsUnhealthy reports whether a container runs again after it was stopped because of a failed probe.
func RestartsUnhealthy(pod *v1.Pod, ctr *v1.Container) bool {
	return restartPolicy(pod, ctr) != v1.RestartPolicyNever
}

// IsFinished reports whether the pod has run to completion: either an init container has failed and will not restart,
// or all main containers have ended and will not restart.
func IsFinished(in Input) bool {
	for i := range in.Want.Spec.InitContainers {
		ctr := &in.Want.Spec.InitContainers[i]
		c, ok := in.Observed.Newest(ctr.Name)
		if ok && c.State == Exited && c.ExitCode != 0 && !WillRestart(in, ctr, c) {
			return true
		}
	}
	return mainsEnded(in)
}

func mainsEnded(in Input) bool {
	round := CurrentRound(in)
	for i := range in.Want.Spec.Containers {
		ctr := &in.Want.Spec.Containers[i]
		c, ok := in.Observed.Newest(ctr.Name)
		if !ok || c.State != Exited || c.Round < round || WillRestart(in, ctr, c) {
			return false
		}
	}
	return true
}

// checkDeadline reports whether the pod has exceeded its activeDeadlineSeconds. Before the deadline, it sets the
// wake-up time to the deadline.
func (p *planner) checkDeadline() bool {
	if p.Want.Spec.ActiveDeadlineSeconds == nil || p.Started.IsZero() {
		return false
	}
	at := deadlineOf(p.Input)
	if p.Now.Before(at) {
		p.wakeAt(at)
		return false
	}
	if p.isRunning() || p.hasActivity() { // otherwise the pod ended earlier, and the notice was already sent
		p.addNotice("", DeadlineExceeded, 0)
	}
	return true
}

// hasActivity reports whether an action other than Ended is in flight or has failed.
func (p *planner) hasActivity() bool {
	for _, f := range p.InFlight {
		if f.Op != Ended {
			return true
		}
	}
	for k := range p.Failed {
		if k.Op != Ended {
			return true
		}
	}
	return false
}

func deadlineOf(in Input) time.Time {
	return in.Started.Add(time.Duration(*in.Want.Spec.ActiveDeadlineSeconds) * time.Second)
}

// DeadlineExpired reports whether the pod was active for longer than its activeDeadlineSeconds. It returns false for a pod
// whose main containers ended before the deadline.
func DeadlineExpired(in Input) bool {
	if in.Want.Spec.ActiveDeadlineSeconds == nil || in.Started.IsZero() || in.Now.Before(deadlineOf(in)) {
		return false
	}
	if !mainsEnded(in) {
		return true
	}
	return slices.ContainsFunc(in.Want.Spec.Containers, func(ctr v1.Container) bool {
		c, _ := in.Observed.Newest(ctr.Name)
		// The runtime reports wall-clock times, and the clock may have been set in the meantime. If the reported end
		// of a container is in the future, the container counts as ended before the deadline.
		ago := in.Now.Round(0).Sub(c.FinishedAt)
		return ago >= 0 && in.Now.Add(-ago).After(deadlineOf(in))
	})
}
