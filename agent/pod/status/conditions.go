package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// setConditions sets the same five conditions as a kubelet. It keeps the conditions that other components have set.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions
func (m *maker) setConditions(st *v1.PodStatus, before v1.PodStatus) {
	ours := []v1.PodCondition{m.readyToStartCondition(), m.initializedCondition(st), m.readyCondition(st), m.containersReady(st),
		newCondition(v1.PodScheduled, true, "", "")}
	if plan.RestartsAll(&m.pod.Spec) {
		ours = append(ours, m.restartingCondition(st))
	}
	if st.Phase != v1.PodSucceeded && st.Phase != v1.PodFailed {
		m.addResizeConditions(st)
		ours = append(ours, m.devicesCondition()...)
	}
	disrupted := m.disruptionMessage()
	if disrupted != "" {
		ours = append(ours, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
			Message: disrupted})
	}
	for _, c := range before.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			continue
		}
		final := m.end != nil && m.end.Phase != "" || st.Phase == v1.PodFailed && m.wasInterrupted()
		if c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet && disrupted == "" && !final {
			continue // the pod runs again
		}
		if !slices.ContainsFunc(ours, func(o v1.PodCondition) bool { return o.Type == c.Type }) {
			st.Conditions = append(st.Conditions, c)
		}
	}
	for _, c := range ours {
		c.LastTransitionTime = *toSeconds(m.in.Now)
		for _, old := range before.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime, c.LastProbeTime = old.LastTransitionTime, old.LastProbeTime
			}
		}
		c.ObservedGeneration = st.ObservedGeneration
		st.Conditions = append(st.Conditions, c)
	}
}

// devicesCondition returns the condition podspec.DevicesPlugged, if the pod has it.
func (m *maker) devicesCondition() []v1.PodCondition {
	if m.host.MissingDevices == nil {
		return nil
	}
	gone := m.host.MissingDevices(m.pod.UID)
	if len(gone) == 0 &&
		!slices.ContainsFunc(m.previous.Conditions, func(c v1.PodCondition) bool { return c.Type == podspec.DevicesPlugged }) &&
		!slices.Contains(m.pod.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: podspec.DevicesPlugged}) {
		return nil
	}
	return []v1.PodCondition{newCondition(podspec.DevicesPlugged, len(gone) == 0, reasonUnless(len(gone) == 0, "DeviceUnplugged"),
		strings.Join(gone, "; "))}
}

// disruptionMessage returns the message of the condition DisruptionTarget, or "" if the pod does not get this
// condition. The pod gets it if it was preempted, if its End has Disrupted set, or if it ends because of a shutdown of
// the machine.
// https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
func (m *maker) disruptionMessage() string {
	if m.end != nil && m.end.Reason == plan.Preempting {
		return "Pod was preempted by Kubelet to accommodate a critical pod."
	}
	if m.end != nil && m.end.Disrupted {
		return m.end.Message
	}
	if m.endsForShutdown() || m.end != nil && m.end.Reason == plan.Terminated {
		return nodeShutdown
	}
	return ""
}

func newCondition(t v1.PodConditionType, ok bool, reason, message string) v1.PodCondition {
	if ok {
		return v1.PodCondition{Type: t, Status: v1.ConditionTrue, Reason: reason}
	}
	return v1.PodCondition{Type: t, Status: v1.ConditionFalse, Reason: reason, Message: message}
}

// readyToStartCondition returns the condition PodReadyToStartContainers, with a kubelet's reason and
// messages. If the sandbox is missing, the states of the waiting containers contain the cause.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-has-network
func (m *maker) readyToStartCondition() v1.PodCondition {
	up := m.sandbox.Ready && (m.pod.Spec.HostNetwork || len(m.sandbox.IPs) > 0)
	message := "pod sandbox has no IP address"
	switch {
	case m.sandbox.ID == "":
		message = "no pod sandbox exists"
	case !m.sandbox.Ready:
		message = "pod sandbox is not ready"
	}
	return newCondition(v1.PodReadyToStartContainers, up, reasonUnless(up, "PodSandboxNotReady"), message)
}

// restartingCondition returns the condition AllContainersRestarting: whether all containers are
// about to restart (KEP-5532).
func (m *maker) restartingCondition(st *v1.PodStatus) v1.PodCondition {
	switch {
	case st.Phase == v1.PodSucceeded:
		return newCondition(v1.AllContainersRestarting, false, "PodCompleted", "")
	case st.Phase == v1.PodFailed:
		return newCondition(v1.AllContainersRestarting, false, "PodFailed", "")
	case plan.AllRestarting(m.in):
		return v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, Reason: "RestartAllContainersStarted",
			Message: "container exited with restart policy rule"}
	}
	return newCondition(v1.AllContainersRestarting, false, "", "")
}

func (m *maker) initializedCondition(st *v1.PodStatus) v1.PodCondition {
	switch {
	case st.Phase == v1.PodSucceeded:
		return newCondition(v1.PodInitialized, true, "PodCompleted", "")
	case st.Phase == v1.PodFailed && plan.MainContainerCreated(m.in, m.sandbox), m.isInitialized():
		return newCondition(v1.PodInitialized, true, "", "")
	}
	return newCondition(v1.PodInitialized, false, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: %v", m.uninitializedNames()))
}

func (m *maker) containersReady(st *v1.PodStatus) v1.PodCondition {
	switch st.Phase {
	case v1.PodSucceeded:
		return newCondition(v1.ContainersReady, false, "PodCompleted", "")
	case v1.PodFailed:
		return newCondition(v1.ContainersReady, false, "PodFailed", "")
	}
	var unready []string
	for i, c := range st.InitContainerStatuses {
		if podspec.IsSidecar(&m.pod.Spec.InitContainers[i]) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range st.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	ready := len(unready) == 0 && !podspec.IsTooLarge(m.pod) // the containers of a pod that is too large are not known
	return newCondition(v1.ContainersReady, ready, reasonUnless(ready, "ContainersNotReady"),
		fmt.Sprintf("containers with unready status: %v", unready))
}

func reasonUnless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

// readyCondition returns the Ready condition. It is true if all containers are ready and all readiness gates are true.
func (m *maker) readyCondition(st *v1.PodStatus) v1.PodCondition {
	c := m.containersReady(st)
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, g := range m.pod.Spec.ReadinessGates {
		conditions := m.pod.Status.Conditions
		if g.ConditionType == podspec.DevicesPlugged {
			conditions = m.devicesCondition()
		}
		switch i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == g.ConditionType }); {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case conditions[i].Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", g.ConditionType,
				conditions[i].Status))
		}
	}
	if len(closed) > 0 {
		return newCondition(v1.PodReady, false, "ReadinessGatesNotReady", strings.Join(closed, ", "))
	}
	return c
}
