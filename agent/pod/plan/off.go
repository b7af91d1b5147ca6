package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A machine that goes off stops its pods, and the next boot starts them again, as after a loss of power.
//
//	runs --Off--> hooks, StopContainer, StopSandbox --> at rest --boot--> RunSandbox, next attempts
//
// A kubelet makes such a pod Failed, and its controller creates another one. An edge node may be cut off from that
// controller for long.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/

// EndedSince reports whether a container ended after a time. The runtime's times are the machine's clock, which may have
// been set since.
func (in Input) EndedSince(c Container, at time.Time) bool {
	ago := in.Now.Round(0).Sub(c.FinishedAt)
	return c.State == Exited && !in.Now.Add(-ago).Before(at)
}

// CutOff reports whether a container of restart policy OnFailure ended after the machine began to go off. It runs again
// after the boot though its exit code may be 0: many programs return 0 on SIGTERM.
func CutOff(in Input, ctr *v1.Container, c Container) bool {
	return !in.Off.IsZero() && in.EndedSince(c, in.Off) && policy(in.Want, ctr) == v1.RestartPolicyOnFailure
}

// undo removes the containers that were cut off with exit code 0. After the boot they would count as completed.
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
