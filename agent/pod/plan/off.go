package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A machine that goes off ends its pods, but not their lives: the next boot starts them
// again, as after a loss of power.
//
//	runs --Off--> hooks, StopContainer, StopSandbox --> at rest --boot--> RunSandbox, next attempts
//
// Kubernetes calls such a pod Failed, and its controller makes another one; here that may
// be out of reach for long.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/

// EndedSince reports whether a container ended after that time. The runtime dates by the
// machine's clock, which may have been set since.
func (in Input) EndedSince(c Container, at time.Time) bool {
	ago := in.Now.Round(0).Sub(c.FinishedAt)
	return c.State == Exited && !in.Now.Add(-ago).Before(at)
}

// CutOff reports whether a container ended only because the machine goes off, and is to
// run again though it seems to have done its work: programs end well when they are asked
// to. One that may never run twice does not run again.
func CutOff(in Input, ctr *v1.Container, c Container) bool {
	return !in.Off.IsZero() && in.EndedSince(c, in.Off) && policy(in.Want, ctr) == v1.RestartPolicyOnFailure
}

// undo removes the containers that were cut off and would count as done after the boot,
// when nobody knows why they ended.
func (p *planner) undo() {
	if p.runs() {
		return
	}
	for _, c := range p.Seen.Containers {
		kind, ctr := podspec.Find(&p.Want.Spec, c.Name)
		if ctr != nil && kind == podspec.Main && c.ExitCode == 0 && CutOff(p.Input, ctr, c) {
			p.start(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt})
		}
	}
}

// AtRest reports whether nothing of a pod runs or is being started.
func AtRest(in Input) bool {
	for _, f := range in.Busy {
		switch f.Op {
		case RunSandbox, StartContainer, StopContainer, StopSandbox, RemoveContainer, PreStop:
			return false
		}
	}
	p := planner{Input: in}
	return !p.runs()
}
