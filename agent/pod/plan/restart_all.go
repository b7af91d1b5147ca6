package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// CurrentRound returns the current round of the pod. It is 0 at first. It increases each time a container exits with a code
// for which a rule restarts all containers (KEP-5532). The round of a container is stored as an annotation of the
// container, so that containers of an earlier round are recognized after a restart of the agent. Ephemeral containers
// have no round.
func CurrentRound(in Input) (round uint32) {
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		c, ok := in.Observed.Newest(ctr.Name)
		if !ok || kind == podspec.Ephemeral {
			continue
		}
		if endsRound(ctr, c) && !(kind == podspec.Sidecar && endedAfterPod(in, c)) {
			c.Round++
		}
		round = max(round, c.Round)
	}
	return round
}

// endsRound reports whether a container has exited with a code that restarts all containers.
func endsRound(ctr *v1.Container, c Container) bool {
	return c.State == Exited && ruleAction(ctr, c.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers
}

// endedAfterPod reports whether a sidecar ended after its pod had run to completion in the sidecar's round. The sidecars of such a
// pod are stopped, so their exit codes must not restart all containers. A sidecar that restarts all containers ends before the containers
// that are stopped because of it. The order in which containers were lost together is not known; they all ended at the same time.
func endedAfterPod(in Input, sidecar Container) bool {
	return hasFinished(in, sidecar.Round, func(c Container) bool {
		return c.FinishedAt.Before(sidecar.FinishedAt) && !(endedWithShim(c) && endedWithShim(sidecar))
	})
}

// ruleAction returns the action of the container's first restart rule that matches the exit code, or "" if none
// matches.
func ruleAction(ctr *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range ctr.RestartPolicyRules {
		if e := r.ExitCodes; e != nil && slices.Contains(e.Values, code) == (e.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

// RestartsAll reports whether a pod has a rule that can restart all its containers.
func RestartsAll(spec *v1.PodSpec) bool {
	for _, ctr := range podspec.Containers(spec) {
		for _, r := range ctr.RestartPolicyRules {
			if r.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// EarlierRoundRuns reports whether containers of an earlier round are still running. They are stopped before any container of
// the current round starts.
func EarlierRoundRuns(in Input) bool {
	round := CurrentRound(in)
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		if c, _ := in.Observed.Newest(ctr.Name); kind != podspec.Ephemeral && c.MayRun() && c.Round < round {
			return true
		}
	}
	return false
}

// AllRestarting reports whether all containers of the pod are about to restart. It returns false when the
// containers of the earlier round have stopped and the first container of the current round was created.
func AllRestarting(in Input) bool {
	round := CurrentRound(in)
	if round == 0 {
		return false
	}
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		if c, ok := in.Observed.Newest(ctr.Name); ok && kind != podspec.Ephemeral && c.Round == round {
			return EarlierRoundRuns(in)
		}
	}
	return true
}

// stopEarlierRound stops all containers of an earlier round at the same time. It runs no preStop hooks and uses the
// minimum grace period. It returns true when no container of an earlier round is running any more. The
// containers then start in the usual order, each after its own back-off.
func (p *planner) stopEarlierRound() bool {
	for kind, ctr := range podspec.Containers(&p.Want.Spec) {
		f, busy := p.InFlight[ctr.Name]
		if busy && kind != podspec.Ephemeral && f.Op == StartContainer && f.Round < p.round {
			p.Cancel = append(p.Cancel, ctr.Name)
		}
	}
	if !EarlierRoundRuns(p.Input) {
		return true
	}
	for kind, ctr := range podspec.Containers(&p.Want.Spec) {
		c, _ := p.Observed.Newest(ctr.Name)
		if kind == podspec.Ephemeral || !c.MayRun() || c.Round >= p.round {
			continue
		}
		f, busy := p.InFlight[c.Name]
		if busy && (f.Op == PostStart || f.Op == PreStop || f.Op == StopContainer && f.Grace > leastGrace) {
			p.Cancel = append(p.Cancel, c.Name)
		}
		p.startAction(Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: leastGrace})
	}
	return false
}
