package status

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// podPhase returns the pod's phase. The phase is not terminal while a container is running. Otherwise a
// controller, such as the Job controller, would start the next pod too early (KEP-3329).
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
func (m *maker) podPhase(st *v1.PodStatus) v1.PodPhase {
	var waiting, failed int
	for _, c := range st.ContainerStatuses {
		switch {
		case c.State.Running != nil:
		case c.State.Waiting != nil && c.LastTerminationState.Terminated == nil:
			waiting++
		case exitCode(c) != 0:
			failed++
		}
	}
	switch {
	case m.end != nil && m.end.Phase != "":
		return m.end.Phase
	case m.isRunning():
	case m.end != nil:
		return v1.PodFailed
	case podspec.IsTooLarge(m.pod) && m.in.Deleting: // it is deleted before the node has rejected it
		return v1.PodFailed
	case podspec.IsTooLarge(m.pod):
		return v1.PodPending
	case plan.IsFinished(m.in), m.in.Deleting && (waiting == 0 || !m.sandbox.Ready):
		if failed == 0 && waiting == 0 && !m.wasInterrupted() {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	}
	if waiting > 0 || !m.isInitialized() {
		return v1.PodPending
	}
	return v1.PodRunning
}

// wasInterrupted reports whether a shutdown of the machine ends the pod, or the node has interrupted a main container. Such a container has
// not completed, even if it has exited with 0.
func (m *maker) wasInterrupted() bool {
	for i := range m.pod.Spec.Containers {
		c, _ := m.in.Observed.Newest(m.pod.Spec.Containers[i].Name)
		if c.State == plan.Exited && m.in.Interrupted[c.ID] != 0 {
			return true
		}
	}
	return m.endsForShutdown()
}

// podEnd returns the node's decision to end the pod, or the deadline that the pod has exceeded. It returns nil if
// there is neither.
func (m *maker) podEnd() *plan.End {
	if m.in.End == nil && plan.DeadlineExpired(m.in) {
		return &plan.End{Reason: plan.DeadlineExceeded, Message: "Pod was active on the node longer than the specified deadline"}
	}
	return m.in.End
}

// phaseReason returns the reason and the message of the phase. For a pod that is being deleted,
// the message is the problem that prevents the deletion.
func (m *maker) phaseReason(phase v1.PodPhase) (reason, message string) {
	switch {
	case m.end != nil && (phase == v1.PodFailed || phase == v1.PodSucceeded):
		return m.end.Reason, m.end.Message
	case m.in.Deleting:
		return "", m.failedStopReason()
	case m.endsForShutdown() && !m.isRunning():
		return plan.Terminated, nodeShutdown
	}
	return "", ""
}

// nodeShutdown is a kubelet's message for a pod that ends because of a shutdown.
const nodeShutdown = "Pod was terminated in response to imminent node shutdown."

// endsForShutdown reports whether the pod is ending because of a shutdown of the machine. It returns false for a pod that had
// ended before the shutdown.
func (m *maker) endsForShutdown() bool {
	if m.in.ShutdownSince.IsZero() || m.in.Deleting || m.end != nil {
		return false
	}
	late := func(c plan.Container) bool { return c.MayRun() || m.in.EndedSince(c, m.in.ShutdownSince) }
	return !plan.IsFinished(m.in) || slices.ContainsFunc(m.in.Observed.Containers, late)
}

// failedStopReason returns the reason why the pod cannot be stopped or removed. It returns "" if no such operation has failed.
func (m *maker) failedStopReason() string {
	var all []string
	for key, f := range m.in.Failed {
		switch key.Op {
		case plan.RunSandbox, plan.StartContainer, plan.PostStart, plan.Admit, plan.Update, plan.Allocate, plan.Resize: // of a running pod
		default:
			all = append(all, f.Message)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// isRunning reports whether a container of the pod is running or being started.
func (m *maker) isRunning() bool {
	for _, f := range m.in.InFlight {
		if f.Op == plan.StartContainer {
			return true
		}
	}
	return slices.ContainsFunc(m.in.Observed.Containers, plan.Container.MayRun)
}

func exitCode(c v1.ContainerStatus) int32 {
	if t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated); t != nil {
		return t.ExitCode
	}
	return 0
}
