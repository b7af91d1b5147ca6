package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// An Interruption tells why the node has stopped a container whose work was not done, although the pod was not over. Many programs exit
// with 0 on SIGTERM, so the exit code of such a container does not tell whether its work is done. The worker stores the Interruption
// before the container is stopped. The zero value means that the container was not interrupted: its exit code is that of its program.
//
//	StopContainer, PreStop: Action.Interrupts --stored--> the signal --> Exited --Input.Interrupted--> RunsAgain, IsFinished
type Interruption uint8

const (
	// CutOff means that the machine shut down, or that the sandbox or the container was lost. As after a power failure, the
	// container has failed, whatever its exit code is: it runs again unless its restart policy is Never.
	CutOff Interruption = iota + 1
	// Replaced means that the container was stopped in order to run again, regardless of its restart policy. The reason is a new
	// definition, a resize, a user's request, a failed probe, another pod network or a preemption.
	Replaced
)

// RunsAgain reports whether a container that has ended runs again because the node has interrupted it.
func RunsAgain(in Input, ctr *v1.Container, c Container) bool {
	switch in.Interrupted[c.ID] {
	case Replaced:
		return true
	case CutOff:
		return restartPolicy(in.Want, ctr) != v1.RestartPolicyNever
	}
	return false
}

// Completed reports whether a container has ended by itself with exit code 0.
func Completed(in Input, c Container) bool {
	return c.State == Exited && c.ExitCode == 0 && in.Interrupted[c.ID] == 0
}

// Interruptions returns the interruptions of the containers, for Input.Interrupted. It returns nil if no container was interrupted.
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

// StoresInterruption reports whether the Interruption of an action must survive the end of the agent. This is not necessary for a main
// container that always restarts. A sidecar always restarts, and an ephemeral container never does.
func StoresInterruption(pod *v1.Pod, a Action) bool {
	if a.Interrupts == 0 || pod == nil {
		return false
	}
	kind, ctr := podspec.Find(&pod.Spec, a.Container)
	return ctr != nil && (kind == podspec.Init || kind == podspec.Main && restartPolicy(pod, ctr) != v1.RestartPolicyAlways)
}

// interruptionOf returns the Interruption of an action, or zero if it changes nothing for the container: an ephemeral container never runs
// again, and a container that always restarts does so after any end.
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
