package admit

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/podspec"
)

// checkAppArmor rejects a pod with an AppArmor profile that the node cannot enforce. A kubelet does the same.
// https://kubernetes.io/docs/tutorials/security/apparmor/
func checkAppArmor(h *Holder, _ []*Holder, n Node) *Rejection {
	pod := h.Pod
	if n.AppArmor == nil {
		return nil
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		if p := translate.AppArmorProfile(pod, c); p != nil && p.Type != v1.AppArmorProfileTypeUnconfined {
			return newRejection("AppArmor", "Cannot enforce AppArmor: %v (container %s asks for a profile)", n.AppArmor, c.Name)
		}
	}
	return nil
}

// checkGroups rejects a pod whose processes must not get the groups of the image's user, if the runtime does not support that. Such a
// runtime ignores the policy. A kubelet does the same.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#supplementalgroupspolicy
func checkGroups(h *Holder, _ []*Holder, n Node) *Rejection {
	sc := h.Pod.Spec.SecurityContext
	const strict = v1.SupplementalGroupsPolicyStrict
	if n.StrictGroups || sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != strict {
		return nil
	}
	message := "SupplementalGroupsPolicy=" + string(strict) + " is not supported in this node"
	return &Rejection{"SupplementalGroupsPolicyNotSupported", message}
}

// unconfinedSELinux is the SELinux type of containers that SELinux does not confine. It has the same effect
// on a host without SELinux.
const unconfinedSELinux = "spc_t"

// checkSELinux rejects a pod with SELinux options that the node cannot enforce. A kubelet does not check
// these options, and a runtime without SELinux ignores them. A pod that sets only a level is admitted. Levels
// allow pods to share volumes, which works without labels on a host without SELinux. Such a level is reported
// as an ignored field (see IgnoredFields).
func checkSELinux(h *Holder, _ []*Holder, n Node) *Rejection {
	if n.SELinux == nil {
		return nil
	}
	for _, c := range podspec.Containers(&h.Pod.Spec) {
		if o := seLinuxOptions(h.Pod, c); o.Type != unconfinedSELinux && o != (v1.SELinuxOptions{Level: o.Level}) {
			return newRejection("SELinux", "Cannot enforce seLinuxOptions: %v (container %s asks for them): remove them, or set type %s",
				n.SELinux, c.Name, unconfinedSELinux)
		}
	}
	return nil
}

// seLinuxOptions returns the SELinux options of a container. If the container has none, it
// returns the pod's options.
func seLinuxOptions(pod *v1.Pod, c *v1.Container) v1.SELinuxOptions {
	if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
		return *c.SecurityContext.SELinuxOptions
	}
	if pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.SELinuxOptions != nil {
		return *pod.Spec.SecurityContext.SELinuxOptions
	}
	return v1.SELinuxOptions{}
}
