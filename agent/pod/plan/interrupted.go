package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// An Interruption is the reason why the node stopped a container that had not completed, in a pod that had not ended. Many programs exit
// with 0 on SIGTERM, so the exit code of such a container does not tell whether its work is done. The worker stores the Interruption before
// the container is stopped. The zero value means that the node did not interrupt the container, so its exit code counts.
//
//	StopContainer, PreStop: Action.Interrupts --stored--> the signal --> Exited --Input.Interrupted--> RunsAgain, IsFinished
type Interruption uint8

const (
	// CutOff means that the machine shut down, or that the sandbox or the container was lost. The container counts as failed, whatever its
	// exit code is, as after a power failure. It is restarted unless its restart policy is Never.
	CutOff Interruption = iota + 1
	// Replaced means that the node stopped the container in order to restart it, regardless of its restart policy. The reason is a new
	// definition, a resize, a user's request, a failed probe, another pod network or a preemption.
	Replaced
)

// RunsAgain reports whether an exited container must be restarted because the node interrupted it. The container's restart policy matters
// only for CutOff.
func RunsAgain(in Input, ctr *v1.Container, c Container) bool {
	switch in.Interrupted[c.ID] {
	case Replaced:
		return true
	case CutOff:
		return restartPolicy(in.Want, ctr) != v1.RestartPolicyNever
	}
	return false
}

// Completed reports whether a container has exited with code 0 and the node did not interrupt it.
func Completed(in Input, c Container) bool {
	return c.State == Exited && c.ExitCode == 0 && in.Interrupted[c.ID] == 0
}

// Interruptions returns the Interruption of each interrupted container, by container ID, for Input.Interrupted. It returns nil if no
// container was interrupted.
func Interruptions(seen Observed, of func(id string) Interruption) (out map[string]Interruption) {
	for _, c := range seen.Containers {
		if kind := of(c.ID); kind != 0 {
			if out == nil {
				out = map[string]Interruption{}
			}
			out[c.ID] = kind
		}
	}
	return out
}

// StoresInterruption reports whether the Interruption of an action must survive a restart of the agent. Only init containers, and main
// containers whose restart policy is not Always, need a stored record. Sidecars and other main containers are always restarted, and
// ephemeral containers never.
func StoresInterruption(pod *v1.Pod, a Action) bool {
	if a.Interrupts == 0 || pod == nil {
		return false
	}
	kind, ctr := podspec.Find(&pod.Spec, a.Container)
	return ctr != nil && (kind == podspec.Init || kind == podspec.Main && restartPolicy(pod, ctr) != v1.RestartPolicyAlways)
}

// interruptionOf returns the Interruption of an action, or zero if the Interruption has no effect: an ephemeral container is never
// restarted, and a container with the restart policy Always is restarted after any exit.
func (p *planner) interruptionOf(a Action) Interruption {
	if a.Interrupts == 0 || p.Want == nil {
		return 0
	}
	kind, ctr := podspec.Find(&p.Want.Spec, a.Container)
	always := ctr != nil && kind != podspec.Init && restartPolicy(p.Want, ctr) == v1.RestartPolicyAlways
	if ctr == nil || kind == podspec.Ephemeral || a.Interrupts == CutOff && always {
		return 0
	}
	return a.Interrupts
}
