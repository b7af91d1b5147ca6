package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Round says in which run of the whole pod its containers are to be: 0 at first, and one
// more each time that a container ends with a code for which its rules ask to restart all
// (KEP-5532). A container carries the round that it was started in, so which ones belong
// to the round before can be seen, also by an agent that starts meanwhile. Ephemeral
// containers are in none.
func Round(in Input) (round uint32) {
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		c, ok := in.Seen.Last(ctr.Name)
		if !ok || kind == podspec.Ephemeral {
			continue
		}
		if asksForAll(ctr, c) {
			c.Round++
		}
		round = max(round, c.Round)
	}
	return round
}

// asksForAll reports whether a container ended so that all are to restart.
func asksForAll(ctr *v1.Container, c Container) bool {
	return c.State == Exited && rule(ctr, c.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers
}

// rule is what the first of a container's rules that an exit code fits asks for; empty:
// none fits.
func rule(ctr *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range ctr.RestartPolicyRules {
		if e := r.ExitCodes; e != nil && slices.Contains(e.Values, code) == (e.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

// RestartsAll reports whether a pod has a rule by which all its containers may restart.
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

// Renewing reports whether containers of the round before still run: they are stopped
// before any starts.
func Renewing(in Input) bool {
	round := Round(in)
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		if c, _ := in.Seen.Last(ctr.Name); kind != podspec.Ephemeral && c.Live() && c.Round < round {
			return true
		}
	}
	return false
}

// Restarting reports whether all containers are about to restart, and none has begun to.
func Restarting(in Input) bool {
	round := Round(in)
	if round == 0 {
		return false
	}
	for kind, ctr := range podspec.Containers(&in.Want.Spec) {
		if c, ok := in.Seen.Last(ctr.Name); ok && kind != podspec.Ephemeral && c.Round == round {
			return Renewing(in)
		}
	}
	return true
}

// renew stops what is left of the round before, all at once: no preStop hook runs, and
// the grace period does not count. It reports whether nothing is left. What is started
// after it comes in the pod's usual order, each container with the back-off that its own
// restarts give it.
func (p *planner) renew() bool {
	for kind, ctr := range podspec.Containers(&p.Want.Spec) {
		f, busy := p.Busy[ctr.Name]
		if busy && kind != podspec.Ephemeral && f.Op == StartContainer && f.Round < p.round {
			p.Cancel = append(p.Cancel, ctr.Name)
		}
	}
	if !Renewing(p.Input) {
		return true
	}
	least := min(leastGrace, p.Grace)
	for kind, ctr := range podspec.Containers(&p.Want.Spec) {
		c, _ := p.Seen.Last(ctr.Name)
		if kind == podspec.Ephemeral || !c.Live() || c.Round >= p.round {
			continue
		}
		f, busy := p.Busy[c.Name]
		if busy && (f.Op == PostStart || f.Op == PreStop || f.Op == StopContainer && f.Grace > least) {
			p.Cancel = append(p.Cancel, c.Name)
		}
		p.start(Action{Op: StopContainer, Container: c.Name, ID: c.ID, Grace: least})
	}
	return false
}
