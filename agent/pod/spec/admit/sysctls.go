package admit

import (
	"slices"
	"strings"

	"k8s.io/component-helpers/node/util/sysctl"
)

// safeSysctls returns the sysctls that a pod may set without affecting other pods. Each of these is
// namespaced, and its effect is limited to the namespace.
// https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#safe-and-unsafe-sysctls
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced",
		"net.ipv4.ip_local_port_range",
		"net.ipv4.ip_local_reserved_ports",
		"net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ping_group_range",
		"net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl",
		"net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_notsent_lowat",
		"net.ipv4.tcp_rmem",
		"net.ipv4.tcp_slow_start_after_idle",
		"net.ipv4.tcp_syncookies",
		"net.ipv4.tcp_wmem",
	}
}

// checkSysctls rejects a pod with sysctls that are neither safe nor allowed by the configuration. It also
// rejects a pod whose sysctls would be set on the host, because the pod uses the host's namespace or the
// sysctl is not namespaced.
func checkSysctls(h *Holder, _ []*Holder, n Node) *Rejection {
	pod := h.Pod
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		allowed := func(pattern string) bool {
			prefix, open := strings.CutSuffix(sysctl.NormalizeName(pattern), "*")
			return name == prefix || open && strings.HasPrefix(name, prefix)
		}
		namespace, _, _ := sysctl.GetNamespace(name)
		switch {
		case !slices.ContainsFunc(safeSysctls(), allowed) && !slices.ContainsFunc(n.Sysctls, allowed):
			return newRejection("SysctlForbidden", "forbidden sysctl: %q not allowlisted", s.Name)
		case namespace == sysctl.UnknownNamespace:
			return newRejection("SysctlForbidden", "forbidden sysctl: %q is not known to be namespaced: it would be set for the whole host",
				s.Name)
		case namespace == sysctl.UserNamespace:
			return newRejection("SysctlForbidden", "forbidden sysctl: %q belongs to user namespaces, and islet does not set those", s.Name)
		case (namespace == sysctl.NetNamespace || namespace == sysctl.UTSNamespace) && pod.Spec.HostNetwork:
			return newRejection("SysctlForbidden", "forbidden sysctl: %q not allowed with host net enabled", s.Name)
		case namespace == sysctl.IPCNamespace && pod.Spec.HostIPC:
			return newRejection("SysctlForbidden", "forbidden sysctl: %q not allowed with host ipc enabled", s.Name)
		}
	}
	return nil
}
