package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// When the machine shuts down, its pods are stopped. The next boot starts them again, as after a power failure.
//
//	runs --ShutdownSince--> hooks, StopContainer, StopSandbox --> at rest --boot--> RunSandbox, next attempts
//
// A kubelet sets such a pod to Failed, and the pod's controller creates another pod. An edge node may have no
// connection to the controller for a long time.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/

// EndedSince reports whether a container ended at or after a time. It compares how long ago both times are, because
// the clock may have been set between them: the runtime reports the container's end as a wall-clock time.
func (in Input) EndedSince(c Container, at time.Time) bool {
	ago := in.Now.Round(0).Sub(c.FinishedAt)
	return c.State == Exited && !in.Now.Add(-ago).Before(at)
}

// CutOff reports whether a container with the restart policy OnFailure ended after the machine began to shut down.
// Such a container runs again after the boot even if its exit code is 0, because many programs exit with 0 on
// SIGTERM.
func CutOff(in Input, ctr *v1.Container, c Container) bool {
	return !in.ShutdownSince.IsZero() && in.EndedSince(c, in.ShutdownSince) && restartPolicy(in.Want, ctr) == v1.RestartPolicyOnFailure
}

// removeCutOff removes containers that ended because of the shutdown with exit code 0. After the boot they would
// otherwise count as completed.
func (p *planner) removeCutOff() {
	if p.isRunning() {
		return
	}
	for _, c := range p.Observed.Containers {
		kind, ctr := podspec.Find(&p.Want.Spec, c.Name)
		if ctr != nil && kind == podspec.Main && c.ExitCode == 0 && CutOff(p.Input, ctr, c) {
			p.startAction(Action{Op: RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt})
		}
	}
}

// AtRest reports whether no sandbox or container of a pod is running or being started.
func AtRest(in Input) bool {
	for _, f := range in.InFlight {
		switch f.Op {
		case RunSandbox, StartContainer, StopContainer, StopSandbox, RemoveContainer, PreStop:
			return false
		}
	}
	p := planner{Input: in}
	return !p.isRunning()
}
