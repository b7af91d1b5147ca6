package plan

import v1 "k8s.io/api/core/v1"

// WillRestart reports whether a container that has ended runs again.
func WillRestart(in Input, ctr *v1.Container, c Container) bool {
	if RunsAgain(in, ctr, c) || in.RestartRequested(c) {
		return true
	}
	switch ruleAction(ctr, c.ExitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	switch restartPolicy(in.Want, ctr) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return c.ExitCode != 0
	}
	return true
}

// restartPolicy returns the restart policy of the container. If the container has none, it returns the
// pod's restart policy.
func restartPolicy(pod *v1.Pod, ctr *v1.Container) v1.RestartPolicy {
	if ctr.RestartPolicy != nil {
		return v1.RestartPolicy(*ctr.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// RestartsUnhealthy reports whether a container runs again after it was stopped because of a failed probe.
func RestartsUnhealthy(pod *v1.Pod, ctr *v1.Container) bool {
	return restartPolicy(pod, ctr) != v1.RestartPolicyNever
}

// RestartRequested reports whether a user has requested a restart of the container.
func (in Input) RestartRequested(c Container) bool {
	ask, ok := in.Requested[c.Name]
	return ok && ask.ID == c.ID
}
