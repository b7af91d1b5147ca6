package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// initialize runs the init containers in order and keeps the sidecars among
// them running. It reports whether the main containers may run: once one of
// them was made in this sandbox, initialization is over.
func (p *planner) initialize(sb Sandbox) bool {
	over := Initialized(p.Input, sb)
	for i := range p.Want.Spec.InitContainers {
		ctr := &p.Want.Spec.InitContainers[i]
		c, ok := p.Seen.Last(ctr.Name)
		switch {
		case podspec.IsSidecar(ctr):
			p.ensure(ctr, sb, true)
			if !over && !(c.SandboxID == sb.ID && Started(p.Input, c)) {
				return false
			}
		case over || ok && c.SandboxID == sb.ID && c.Round == p.round && c.State == Exited && c.ExitCode == 0:
		default:
			p.ensure(ctr, sb, false)
			return false
		}
	}
	return true
}

// Initialized reports whether a main container was made in the sandbox. Of a pod all
// of whose containers restart none counts that was made before.
func Initialized(in Input, sb Sandbox) bool {
	round := Round(in)
	return slices.ContainsFunc(in.Want.Spec.Containers, func(ctr v1.Container) bool {
		c, ok := in.Seen.Last(ctr.Name)
		return ok && c.SandboxID == sb.ID && c.Round == round
	})
}

// Started reports whether a container runs, its postStart hook has returned and
// its startup probe has passed.
func Started(in Input, c Container) bool {
	if f, busy := in.Busy[c.Name]; busy && f.Op == StartContainer {
		return false
	}
	h, probed := in.Health[c.ID]
	return c.State == Running && !Hooking(in, c) && (!probed || h.Started)
}

// run keeps the main containers running. They start side by side, but for one whose
// hook runs: those after it wait, as for a kubelet.
func (p *planner) run(sb Sandbox) {
	for i := range p.Want.Spec.Containers {
		ctr := &p.Want.Spec.Containers[i]
		c, ok := p.Seen.Last(ctr.Name)
		if ok && c.State == Exited && c.Round == p.round && !Restarts(p.Input, ctr, c) {
			continue
		}
		p.ensure(ctr, sb, true)
		p.held = p.held || p.startsWithHook(ctr)
	}
	p.held = false
}

// ensure brings one container to a healthy running state.
func (p *planner) ensure(ctr *v1.Container, sb Sandbox, replace bool) {
	if f, busy := p.Busy[ctr.Name]; busy && f.Op == StartContainer && f.Hash != Hash(ctr) {
		p.Cancel = append(p.Cancel, ctr.Name)
	}
	switch c, exists := p.Seen.Last(ctr.Name); {
	case !exists:
		p.start(Action{Op: StartContainer, Container: ctr.Name, Attempt: p.Lives, Round: p.round, Hash: Hash(ctr)})
	case c.Live():
		p.keep(ctr, c, sb, replace)
	default:
		p.startAgain(ctr, c, sb)
	}
}

// keep lets a container run, or stops it. It is stopped if its definition has changed and it may be replaced:
// an init container that is to end by itself may not. The first case that applies counts. The reasons to run
// it again come first, since with them its end counts neither as a crash nor for its restart policy.
func (p *planner) keep(ctr *v1.Container, c Container, sb Sandbox, replace bool) {
	switch {
	case c.State != Running || c.SandboxID != sb.ID: // the runtime has lost it, or its sandbox
		p.stop(c, Action{Grace: p.Grace})
	case replace && Changed(ctr, c):
		p.stop(c, Action{Grace: p.Grace, Hash: Hash(ctr)})
	case replace && Outgrown(p.Input, c):
		p.stop(c, Action{Grace: p.Grace, Again: true})
	case p.Asks(c):
		p.stop(c, Action{Grace: p.Asked[c.Name].Grace})
	case p.Health[c.ID].Unhealthy:
		p.stop(c, Action{Grace: p.patience(ctr, c), Again: policy(p.Want, ctr) == v1.RestartPolicyOnFailure})
	case HookFailed(p.Input, c), p.preStopped(c):
		p.stop(c, Action{Grace: p.Grace})
	case Hooking(p.Input, c):
		p.start(Action{Op: PostStart, Container: c.Name, ID: c.ID})
	}
}

// startAgain starts a container that does not run. The first case that applies counts.
func (p *planner) startAgain(ctr *v1.Container, c Container, sb Sandbox) {
	here, changed := c.SandboxID == sb.ID, Changed(ctr, c) || Outgrown(p.Input, c)
	start := Action{Op: StartContainer, Container: c.Name, Attempt: c.Attempt + 1, Round: p.round, Hash: Hash(ctr)}
	switch {
	case c.State == Created && here && !changed && c.Round == p.round && p.Failed[Key{c.Name, StartContainer}].N == 0:
		// It was created by an agent that died before it could start it. If the start fails, the container stays
		// until the next attempt is there, so that its number is not used again.
		start.Attempt, start.Streak = c.Attempt, c.Streak
		p.start(start)
	case changed, p.Asks(c): // its crashes were those of another definition, or a person looks after them
		p.start(start)
	case c.State == Exited && here && p.waits(c):
	default:
		start.Streak = streakIn(sb.ID, c)
		p.start(start)
	}
}

// patience is how long a container gets to end that its probes gave up (KEP-2238).
func (p *planner) patience(ctr *v1.Container, c Container) time.Duration {
	probe := ctr.LivenessProbe
	if !p.Health[c.ID].Started {
		probe = ctr.StartupProbe
	}
	if probe == nil || probe.TerminationGracePeriodSeconds == nil {
		return p.Grace
	}
	return time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
}

// waits reports whether a container that ended is in crash back-off.
func (p *planner) waits(c Container) bool {
	at, delay := NextStart(c, p.CrashMax)
	if p.before(at, delay) {
		p.wake(at)
		if !lost(c) {
			p.notice(c.Name, CrashLoopBackOff, int(c.Attempt))
		}
		return true
	}
	return false
}

// Replaces reports whether a container was stopped only to run again.
func (in Input) Replaces(c Container) bool {
	id, ok := in.Replaced[c.Name]
	return ok && id == c.ID
}

// Asks reports whether a person asked for a container to be restarted.
func (in Input) Asks(c Container) bool {
	ask, ok := in.Asked[c.Name]
	return ok && ask.ID == c.ID
}

// Restarts reports whether a container that ended is to run again.
func Restarts(in Input, ctr *v1.Container, c Container) bool {
	if in.Replaces(c) || in.Asks(c) || CutOff(in, ctr, c) {
		return true
	}
	switch rule(ctr, c.ExitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	switch policy(in.Want, ctr) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return c.ExitCode != 0
	}
	return true
}

// policy is the container's own, or else its pod's.
func policy(pod *v1.Pod, ctr *v1.Container) v1.RestartPolicy {
	if ctr.RestartPolicy != nil {
		return v1.RestartPolicy(*ctr.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// RestartsUnhealthy reports whether a container that its probes gave up runs again.
func RestartsUnhealthy(pod *v1.Pod, ctr *v1.Container) bool {
	return policy(pod, ctr) != v1.RestartPolicyNever
}

// Finished reports whether the pod has run to its end by itself: an init
// container failed for good, or every main container ended and stays so.
func Finished(in Input) bool {
	for i := range in.Want.Spec.InitContainers {
		ctr := &in.Want.Spec.InitContainers[i]
		c, ok := in.Seen.Last(ctr.Name)
		if ok && c.State == Exited && c.ExitCode != 0 && !Restarts(in, ctr, c) {
			return true
		}
	}
	return mainsEnded(in)
}

func mainsEnded(in Input) bool {
	round := Round(in)
	for i := range in.Want.Spec.Containers {
		ctr := &in.Want.Spec.Containers[i]
		c, ok := in.Seen.Last(ctr.Name)
		if !ok || c.State != Exited || c.Round < round || Restarts(in, ctr, c) {
			return false
		}
	}
	return true
}

// expired reports whether the pod's activeDeadlineSeconds have passed, or asks
// to be woken when they will have.
func (p *planner) expired() bool {
	if p.Want.Spec.ActiveDeadlineSeconds == nil || p.Started.IsZero() {
		return false
	}
	at := deadline(p.Input)
	if p.Now.Before(at) {
		p.wake(at)
		return false
	}
	if p.runs() || p.tries() { // it is news
		p.notice("", DeadlineExceeded, 0)
	}
	return true
}

// tries reports whether something of the pod is being done, or failed, but what
// follows its end.
func (p *planner) tries() bool {
	for _, f := range p.Busy {
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

func deadline(in Input) time.Time {
	return in.Started.Add(time.Duration(*in.Want.Spec.ActiveDeadlineSeconds) * time.Second)
}

// Expired reports whether the pod was active for longer than it may be. A pod
// that finished in time is not.
func Expired(in Input) bool {
	if in.Want.Spec.ActiveDeadlineSeconds == nil || in.Started.IsZero() || in.Now.Before(deadline(in)) {
		return false
	}
	if !mainsEnded(in) {
		return true
	}
	return slices.ContainsFunc(in.Want.Spec.Containers, func(ctr v1.Container) bool {
		c, _ := in.Seen.Last(ctr.Name)
		// The runtime dates by the machine's clock, which may have been set meanwhile: what
		// ended in its future ended in time.
		ago := in.Now.Round(0).Sub(c.FinishedAt)
		return ago >= 0 && in.Now.Add(-ago).After(deadline(in))
	})
}
