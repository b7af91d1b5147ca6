package admit

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/translate"
	"github.com/islet-edge/islet/podspec"
)

// apparmor refuses a pod whose profiles nobody would enforce, as a kubelet does.
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

// unconfinedSELinux is the type of containers that SELinux leaves alone, which can
// be had anywhere.
const unconfinedSELinux = "spc_t"

// selinux refuses a pod whose labels nobody would enforce. A kubelet leaves that to
// the runtime, which without SELinux runs the pod as if it had not asked.
func selinux(h *Holder, _ []*Holder, n Node) *Rejection {
	if n.SELinux == nil {
		return nil
	}
	pod := h.Pod
	var of v1.PodSecurityContext
	if pod.Spec.SecurityContext != nil {
		of = *pod.Spec.SecurityContext
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		var own v1.SecurityContext
		if c.SecurityContext != nil {
			own = *c.SecurityContext
		}
		if o := cmp.Or(own.SELinuxOptions, of.SELinuxOptions); o != nil && *o != (v1.SELinuxOptions{}) && o.Type != unconfinedSELinux {
			return reject("SELinux", "Cannot enforce seLinuxOptions: %v (container %s asks for them): remove them, or set type %s", n.SELinux, c.Name, unconfinedSELinux)
		}
	}
	return nil
}
