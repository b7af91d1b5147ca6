package admit

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/podspec"
)

// apparmor rejects a pod with an AppArmor profile if the node cannot enforce it, as a kubelet does.
// https://kubernetes.io/docs/tutorials/security/apparmor/
func apparmor(h *Holder, _ []*Holder, n Node) *Rejection {
	pod := h.Pod
	if n.AppArmor == nil {
		return nil
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		if p := translate.AppArmorProfile(pod, c); p != nil && p.Type != v1.AppArmorProfileTypeUnconfined {
			return reject("AppArmor", "Cannot enforce AppArmor: %v (container %s asks for a profile)", n.AppArmor, c.Name)
		}
	}
	return nil
}

// unconfinedSELinux is the type of containers that SELinux does not confine. It needs no SELinux on the host.
const unconfinedSELinux = "spc_t"

// selinux rejects a pod with SELinux options if the node cannot enforce them. A kubelet leaves the check to the
// runtime, which without SELinux ignores the options. A pod that sets only a level is admitted: the level serves to
// share volumes among pods, which without SELinux needs no label. Such a level is reported as an ignored field (see
// IgnoredFields).
func selinux(h *Holder, _ []*Holder, n Node) *Rejection {
	if n.SELinux == nil {
		return nil
	}
	for _, c := range podspec.Containers(&h.Pod.Spec) {
		if o := seLinuxOptions(h.Pod, c); o.Type != unconfinedSELinux && o != (v1.SELinuxOptions{Level: o.Level}) {
			return reject("SELinux", "Cannot enforce seLinuxOptions: %v (container %s asks for them): remove them, or set type %s",
				n.SELinux, c.Name, unconfinedSELinux)
		}
	}
	return nil
}

// seLinuxOptions returns the options of a container, or else those of its pod.
func seLinuxOptions(pod *v1.Pod, c *v1.Container) v1.SELinuxOptions {
	if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
		return *c.SecurityContext.SELinuxOptions
	}
	if pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.SELinuxOptions != nil {
		return *pod.Spec.SecurityContext.SELinuxOptions
	}
	return v1.SELinuxOptions{}
}
