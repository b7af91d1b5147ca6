package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// This type is the world's own knowledge about the end of the pod. It does not use the functions of the planner that it checks.
type podEnd struct {
	over bool // the pod has run to completion, and nothing has happened since that may change this
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
		if kind == podspec.Init && ended && c.ExitCode != 0 {
			return true
		}
		left = left || kind == podspec.Main && !ended
	}
	return !left
}

// runsAgain reports whether a container that has ended runs again.
func (w *world) runsAgain(ctr *v1.Container, c Container) bool {
	if w.in.Replaced[c.Name] == c.ID || w.undone(&c) || w.shuttingDown() && w.in.Want.Spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return true
	}
	for _, r := range ctr.RestartPolicyRules {
		if slices.Contains(r.ExitCodes.Values, c.ExitCode) {
			return true
		}
	}
	switch w.in.Want.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return c.ExitCode != 0
	}
	return true
}
