package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

func (w *world) check(a Action) {
	ending := w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.shuttingDown()
	removing := w.in.Want == nil || w.in.Deleting
	newest, any := w.in.Observed.Sandbox()
	runs := w.anyRunning(func(Container) bool { return true }) ||
		slices.ContainsFunc(w.in.Observed.Sandboxes, func(s Sandbox) bool { return s.Ready })
	switch a.Op {
	case Admit:
		w.require(w.in.Want != nil && !w.in.Deleting && !w.in.Waiting, 41, "a verdict on a pod that ends or waits")
		w.require(!w.in.Admitted && w.in.End == nil || w.in.End != nil && w.in.Reconsider && !runs, 41, "a second verdict")
	case Allocate:
		w.require(w.in.Undecided && w.in.Admitted && !ending && !w.in.Waiting, 63, "decides about resources for nothing")
	case Resize:
		w.checkResize(a, newest, ending)
	case Update:
		w.require(!ending && w.in.Admitted && newest.Ready, 42, "updates what does not run")
		w.require(a.Hash == w.in.Spec && a.Hash != w.in.Applied && w.in.Applied != "", 42, "updates for nothing: %q is %q", a.Hash, w.in.Applied)
	case Ended:
		over := w.in.End != nil || w.in.Want != nil && (IsFinished(w.in) || DeadlineExpired(w.in))
		w.require(over && !removing, 43, "the hooks hear of an end that is none")
		w.require(!runs, 43, "the hooks give back what runs")
		w.require(!w.in.Ended, 43, "the hooks hear of the same end again")
	case Unmount:
		w.require(w.shuttingDown() && !removing && !runs && !w.in.Unmounted, 70, "unmounts what is still needed")
	case Forget:
		w.require(removing && len(w.in.Observed.Sandboxes)+len(w.in.Observed.Containers) == 0, 44, "forgets a pod of which something is left")
		w.require(!w.in.Forgotten, 44, "forgets it again")
	case RunSandbox:
		w.require(w.in.Admitted && w.in.End == nil, 45, "runs a sandbox without a verdict")
		w.require(a.Hash == w.in.Spec, 42, "a sandbox of another spec")
		w.require(!ending && !w.in.Waiting, 7, "runs a sandbox for a pod that ends or waits")
		w.require(!newest.Ready, 8, "runs a sandbox beside a ready one")
		w.require(int(a.Attempt) > w.sandbox, 9, "sandbox attempt %d used twice", a.Attempt)
		w.require(!w.anyRunning(func(Container) bool { return true }), 10, "runs a sandbox while containers run")
	case StartContainer:
		w.require(w.in.Admitted && w.in.End == nil, 45, "starts a container without a verdict")
		w.require(!ending && !w.in.Waiting, 7, "starts a container of a pod that ends or waits")
		w.require(any && newest.Ready, 8, "starts a container without a ready sandbox")
		w.require(newest.ID != w.in.Stale, 8, "starts a container in a stale sandbox")
		w.checkStart(a, newest)
	case PostStart:
		c := find(w.in.Observed, a.ID)
		w.require(c != nil && c.State == Running && c.PostStart && !w.in.Hooked[a.ID], 62, "runs a postStart hook for nothing: %+v", c)
		w.require(!ending && !HookFailed(w.in, *c), 62, "runs a postStart hook again that failed")
	case PreStop:
		w.checkStop(a, newest)
		w.checkGrace(a, ending)
		w.checkPreStop(a)
	case StopContainer:
		w.checkStop(a, newest)
		w.checkGrace(a, ending)
		w.checkHooked(a, ending)
		w.require(a.Grace >= leastGrace, 69, "%s is killed after %v", a.Container, a.Grace)
		main := a.Container[0] == 's' && w.in.Want != nil && ending && w.graced
		w.require(!main || !w.anyRunning(func(c Container) bool { return c.Name[0] == 'c' && c.ID != a.ID }) ||
			w.in.Now.Sub(w.in.Stopping) >= max(w.in.Grace, leastPodGrace), 12, "sidecar %s stops before the main containers", a.Container)
	case RemoveContainer:
		c := find(w.in.Observed, a.ID)
		w.require(c != nil && !c.MayRun(), 13, "removes a container that runs: %+v", a)
		last, _ := w.in.Observed.Newest(a.Container)
		ended, _ := w.in.Observed.LastExited(a.Container)
		w.require(removing || a.ID != last.ID && a.ID != ended.ID, 14, "removes the container that logs and attempts need: %+v", a)
	case StopSandbox:
		w.require(!w.anyRunning(func(c Container) bool { return c.SandboxID == a.ID && (ending || a.ID == w.in.Stale) }), 15,
			"stops a sandbox under its containers")
	case RemoveSandbox:
		used := slices.ContainsFunc(w.in.Observed.Containers, func(c Container) bool { return c.SandboxID == a.ID })
		w.require(!used, 16, "removes a sandbox with its containers")
		w.require(removing || a.ID != newest.ID, 16, "removes the sandbox that is in use")
	}
}

// checkPreStop checks that a preStop hook runs only once, and only before its container stops.
func (w *world) checkPreStop(a Action) {
	c := find(w.in.Observed, a.ID)
	_, ran := w.in.PreStopped[a.ID]
	w.require(c != nil && c.State == Running && hooks(w.in.Want, a.Container).PreStop != nil && !ran, 52,
		"runs a preStop hook for nothing: %+v", c)
	w.require(a.Grace > 0, 52, "a preStop hook has %v", a.Grace)
}

// checkHooked checks that a container's preStop hook runs before the container stops, if the grace period permits the hook.
func (w *world) checkHooked(a Action, ending bool) {
	c := find(w.in.Observed, a.ID)
	if c == nil || w.in.Want == nil {
		return
	}
	last, _ := w.in.Observed.Newest(a.Container)
	stale := c.Round < CurrentRound(w.in) && !ending && !IsFinished(w.in) && !DeadlineExpired(w.in)
	_, ran := w.in.PreStopped[a.ID]
	late := w.in.Stopping.IsZero() && w.in.Grace == 0 ||
		!w.in.Stopping.IsZero() && w.in.Now.Sub(w.in.Stopping) >= max(w.in.Grace, leastPodGrace)
	w.require(ran || late || stale || c.ID != last.ID || c.State != Running || hooks(w.in.Want, a.Container).PreStop == nil, 53,
		"stops %+v without its hook", c)
	sb, _ := w.in.Observed.Sandbox()
	renews := stale && sb.Ready && sb.ID != w.in.Stale && w.in.Admitted && !w.in.Waiting && a.Container[0] != 'e' && c.ID == last.ID
	w.require(!renews || a.Grace <= leastGrace, 61, "%s has %v though all restart", a.Container, a.Grace)
}

// checkTurn checks that a main container starts only after the postStart hooks of the previous main containers have returned.
func (w *world) checkTurn(a Action, d Decision) {
	for _, ctr := range w.in.Want.Spec.Containers {
		if ctr.Name == a.Container || a.Container[0] != 'c' {
			return
		}
		if hooks(w.in.Want, ctr.Name).PostStart == nil {
			continue
		}
		does := func(a Action) bool { return a.Container == ctr.Name && (a.Op == StartContainer || a.Op == PostStart) }
		goesOn := does(w.in.InFlight[ctr.Name].Action) && !slices.Contains(d.Cancel, ctr.Name)
		w.require(!goesOn && !slices.ContainsFunc(d.Start, does), 51, "%s starts beside the hook of %s", a.Container, ctr.Name)
	}
}

func (w *world) checkStart(a Action, sb Sandbox) {
	w.require(!w.anyRunning(func(c Container) bool { return c.Name == a.Container }), 17, "second live instance of %s", a.Container)
	last, ok := w.in.Observed.Newest(a.Container)
	ctr := definition(w.in.Want, a.Container)
	changed := ok && (DefinitionChanged(ctr, last) || ResizeNeedsRestart(w.in, last))
	round := CurrentRound(w.in)
	w.require(a.Hash == Hash(ctr), 23, "%+v is not of the wanted definition", a)
	w.require(a.Round == round, 55, "%+v belongs to round %d", a, round)
	w.require(!changed || a.Streak == 0, 20, "streak of %s is %d after another definition", a.Container, a.Streak)
	resumed := ok && !changed && last.State == Created && last.Attempt == a.Attempt
	most, made := w.attempts[a.Container]
	w.require(resumed || !made || int(a.Attempt) > most, 18, "attempt %d of %s used twice", a.Attempt, a.Container)
	kind := a.Container[0]
	if kind == 'e' {
		ran := slices.ContainsFunc(w.in.Observed.Containers, func(c Container) bool { return c.Name == a.Container && c.State != Created })
		w.require(!ran, 54, "an ephemeral container starts again")
		return
	}
	w.require(!EarlierRoundRuns(w.in), 55, "%+v starts before the last round has ended", a)
	if ok && last.State == Exited {
		never := w.in.Want.Spec.RestartPolicy == v1.RestartPolicyNever
		onFailure := w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure && last.ExitCode == 0
		interrupted := w.cut[last.ID] == Replaced || w.cut[last.ID] == CutOff && !never || last.Round < round
		w.require(kind != 'c' || interrupted || !never && !onFailure, 19, "%s runs again against its restart policy", a.Container)
		at, delay := NextStart(last, 0)
		sane := !changed && at.Sub(w.in.Now) <= 2*delay
		w.require(last.SandboxID != sb.ID || !sane || !w.in.Now.Before(at), 20, "%s runs again %v too early", a.Container, at.Sub(w.in.Now))
		follows := last.Streak + 1
		switch {
		case last.SandboxID != sb.ID:
			follows = 0
		case endedWithShim(last):
			follows = last.Streak
		case !last.StartedAt.IsZero() && last.FinishedAt.Sub(last.StartedAt) >= backoffReset:
			follows = 1
		}
		w.require(changed || a.Streak == follows, 20, "streak of %s is %d after %d", a.Container, a.Streak, last.Streak)
	}
	if MainContainerCreated(w.in, sb) {
		return
	}
	for _, ctr := range w.in.Want.Spec.InitContainers { // the previous init containers must have finished
		if ctr.Name == a.Container {
			return
		}
		c, _ := w.in.Observed.Newest(ctr.Name)
		started := c.State == Running && !PostStartRunning(w.in, c) && (ctr.StartupProbe == nil || w.in.Health[c.ID].Started)
		done := c.SandboxID == sb.ID && c.Round == round && (w.completed(c) || ctr.RestartPolicy != nil && started) ||
			ctr.RestartPolicy != nil && w.wasPassed(ctr.Name, sb)
		w.require(done, 21, "%s starts before %s is done", a.Container, ctr.Name)
	}
}

// checkProgress checks that an init container or sidecar starts as soon as all containers before it allow that.
func (w *world) checkProgress(d Decision) {
	_, busy := w.in.InFlight[""]
	podAction := func(a Action) bool { return a.Container == "" }
	if w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.in.Hold || w.in.Waiting || !w.in.Admitted || w.shuttingDown() || busy ||
		slices.ContainsFunc(d.Start, podAction) {
		return
	}
	for _, ctr := range w.in.Want.Spec.InitContainers {
		_, exists := w.in.Observed.Newest(ctr.Name)
		_, starts := w.in.InFlight[ctr.Name]
		_, failed := w.in.Failed[Key{ctr.Name, StartContainer}]
		starts = starts || slices.ContainsFunc(d.Start, func(a Action) bool { return a.Container == ctr.Name })
		w.require(exists || starts || failed || !w.isNext(ctr.Name), 67, "%s does not start: %+v", ctr.Name, w.in.Observed)
	}
}

// checkGrace checks that a container is stopped with the pod's grace period. If a probe failed, the grace period is the probe's, and the
// container is restarted even if it exits with code 0.
func (w *world) checkGrace(a Action, ending bool) {
	c := find(w.in.Observed, a.ID)
	sb, _ := w.in.Observed.Sandbox()
	if ending || c == nil || a.Hash != "" || sb.ID == w.in.Stale || !sb.Ready || c.SandboxID != sb.ID || c.State != Running ||
		IsFinished(w.in) || DeadlineExpired(w.in) || !w.in.Health[c.ID].Unhealthy {
		most := max(w.in.Grace, leastGrace)
		if a.Op == PreStop {
			most = max(w.in.Grace, leastPodGrace)
		}
		w.require(a.Grace <= most, 11, "grace %v is more than the pod's", a.Grace)
		return
	}
	if last, _ := w.in.Observed.Newest(c.Name); last.ID != c.ID {
		return
	}
	want, ctr := w.in.Grace, definition(w.in.Want, a.Container)
	switch started := w.in.Health[c.ID].Started; {
	case started && ctr.LivenessProbe != nil:
		want = time.Duration(*ctr.LivenessProbe.TerminationGracePeriodSeconds) * time.Second
	case !started && ctr.StartupProbe != nil:
		want = time.Duration(*ctr.StartupProbe.TerminationGracePeriodSeconds) * time.Second
	}
	if c.Round < CurrentRound(w.in) && c.Name[0] != 'e' { // checkHooked checks this case
		return
	}
	want -= w.in.PreStopped[c.ID]
	if a.Op == StopContainer {
		want = max(want, leastGrace)
	}
	if ResizeNeedsRestart(w.in, *c) {
		return
	}
	w.require(a.Grace == want, 11, "grace %v is not the probe's, %v", a.Grace, want)
}

// checkStop checks that no container is stopped without a reason.
func (w *world) checkStop(a Action, sb Sandbox) {
	c := find(w.in.Observed, a.ID)
	if w.in.Want == nil || w.in.Deleting || w.in.End != nil || w.shuttingDown() || IsFinished(w.in) || DeadlineExpired(w.in) || c == nil {
		return
	}
	last, _ := w.in.Observed.Newest(a.Container)
	changed := DefinitionChanged(definition(w.in.Want, a.Container), *c) && a.Container[0] != 'i'
	lost := !sb.Ready || c.SandboxID != sb.ID || sb.ID == w.in.Stale
	_, hooked := w.in.PreStopped[c.ID]
	late := hooked || w.cut[c.ID] != 0 || HookFailed(w.in, *c) || c.Round < CurrentRound(w.in) && a.Container[0] != 'e'
	w.require(lost || changed || late || ResizeNeedsRestart(w.in, *c) || c.State == Unknown ||
		c.ID != last.ID || w.in.Health[c.ID].Unhealthy, 24,
		"stops %+v for nothing", c)
	w.require(a.Hash == "" || changed, 24, "replaces %+v with the same", c)
}
