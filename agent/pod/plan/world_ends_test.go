package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A podEnd records how the pod and its containers ended. Its methods do not use the functions of the planner that they check.
type podEnd struct {
	over bool                    // the pod has run to completion, and no event since then may restart it
	cut  map[string]Interruption // Interruptions of the containers, by container ID, as judge returned them
	// asleep maps the ID of each container with a running sleep hook to the Interruption with which the hook began.
	asleep map[string]Interruption
}

// checkEnd checks that the planner and the world agree about the completion of the pod, and that a completed pod stays completed.
func (w *world) checkEnd() {
	if w.in.Want == nil {
		w.over = false
		return
	}
	w.require(IsFinished(w.in) == w.finished(), 65, "the planner believes that the pod has finished: %v: %+v", IsFinished(w.in), w.in.Observed)
	w.require(!w.over || IsFinished(w.in), 66, "a finished pod runs again: %+v", w.in.Observed)
	w.over = IsFinished(w.in)
}

// finished reports whether the pod has run to completion.
func (w *world) finished() bool {
	left := false
	for kind, ctr := range podspec.Containers(&w.in.Want.Spec) {
		c, ok := w.in.Observed.Newest(ctr.Name)
		ended := ok && c.State == Exited && c.Round == CurrentRound(w.in) && !w.runsAgain(ctr, c)
		if kind == podspec.Init && ended && !w.completed(c) {
			return true
		}
		left = left || kind == podspec.Main && !ended
	}
	return !left
}

// runsAgain reports whether an exited container must be restarted.
func (w *world) runsAgain(ctr *v1.Container, c Container) bool {
	never := w.in.Want.Spec.RestartPolicy == v1.RestartPolicyNever && ctr.RestartPolicy == nil
	if w.cut[c.ID] == Replaced || w.cut[c.ID] == CutOff && !never {
		return true
	}
	for _, r := range ctr.RestartPolicyRules {
		if slices.Contains(r.ExitCodes.Values, c.ExitCode) {
			return true
		}
	}
	if w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure && ctr.RestartPolicy == nil {
		return c.ExitCode != 0
	}
	return !never
}

// completed reports whether a container exited with code 0 and was not interrupted.
func (w *world) completed(c Container) bool {
	return c.State == Exited && c.ExitCode == 0 && w.cut[c.ID] == 0
}

// interrupt records the start of an action that may interrupt a container. It records the Interruption that the planner has set, and the
// one that judge returns.
func (w *world) interrupt(a Action) {
	if a.Op != StopContainer && a.Op != PreStop {
		w.require(a.Interrupts == 0, 50, "%+v interrupts something", a)
		return
	}
	if a.Op == PreStop && w.sleeps(a.Container) { // the worker records nothing before the sleep has ended
		if w.asleep == nil {
			w.asleep = map[string]Interruption{}
		}
		w.asleep[a.ID] = w.judge(a)
		return
	}
	w.recordInterruption(a, w.judge(a))
}

// slept records the Interruption of a container whose sleep hook has ended without being cancelled.
func (w *world) slept(a Action) {
	if a.Op == PreStop && w.sleeps(a.Container) {
		w.recordInterruption(a, w.asleep[a.ID])
	}
}

func (w *world) recordInterruption(a Action, opinion Interruption) {
	if w.in.Interrupted == nil {
		w.in.Interrupted = map[string]Interruption{}
	}
	w.in.Interrupted[a.ID] = max(w.in.Interrupted[a.ID], a.Interrupts)
	if w.cut == nil {
		w.cut = map[string]Interruption{}
	}
	w.cut[a.ID] = max(w.cut[a.ID], opinion)
}

// sleeps reports whether the preStop hook of a container only sleeps.
func (w *world) sleeps(name string) bool {
	h := hooks(w.in.Want, name).PreStop
	return h != nil && h.Exec == nil && h.HTTPGet == nil
}

// judge returns the Interruption that an action must have, or zero if the action does not interrupt the container. It ignores the restart
// policy.
func (w *world) judge(a Action) Interruption {
	c := find(w.in.Observed, a.ID)
	if c == nil || w.in.Want == nil || w.in.Deleting || a.Container[0] == 'e' {
		return 0
	}
	sb, _ := w.in.Observed.Sandbox()
	last, _ := w.in.Observed.Newest(a.Container)
	ctr := definition(w.in.Want, a.Container)
	switch {
	case w.in.End != nil: // the node may admit the pod again
		return Replaced
	case w.shuttingDown():
		return CutOff
	case w.finished() || DeadlineExpired(w.in):
		return 0
	case sb.Ready && sb.ID == w.in.Stale:
		return Replaced
	case !sb.Ready:
		return CutOff
	case c.Round < CurrentRound(w.in) || last.ID != c.ID: // its end does not matter any more
		return 0
	case c.SandboxID != sb.ID || c.State == Unknown:
		return CutOff
	case a.Container[0] != 'i' && (DefinitionChanged(ctr, *c) || ResizeNeedsRestart(w.in, *c)):
		return Replaced
	case w.in.Health[c.ID].Unhealthy && w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure && ctr.RestartPolicy == nil:
		return Replaced
	case w.in.Health[c.ID].Unhealthy || HookFailed(w.in, *c):
		return 0
	case w.ranPreStop(c.ID): // the stop has begun, but its reason is gone
		return CutOff
	}
	return 0
}

func (w *world) ranPreStop(id string) bool {
	_, ran := w.in.PreStopped[id]
	return ran
}
