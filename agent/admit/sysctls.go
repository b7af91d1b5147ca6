package admit

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// safe lists the sysctls that a pod may set without being able to disturb
// others: each lives in a namespace and is bounded in it.
// https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#safe-and-unsafe-sysctls
func safe() []string {
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
		"net.ipv4.tcp_rmem",
		"net.ipv4.tcp_syncookies",
		"net.ipv4.tcp_wmem",
	}
}

func sysctls(pod *v1.Pod, _ []*v1.Pod, n Node) *Rejection {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		allowed := func(pattern string) bool {
			prefix, open := strings.CutSuffix(strings.ReplaceAll(pattern, "/", "."), "*")
			return name == prefix || open && strings.HasPrefix(name, prefix)
		}
		switch {
		case !slices.ContainsFunc(safe(), allowed) && !slices.ContainsFunc(n.Sysctls, allowed):
			return reject("SysctlForbidden", "forbidden sysctl: %q not allowlisted", s.Name)
		case strings.HasPrefix(name, "net.") && pod.Spec.HostNetwork:
			return reject("SysctlForbidden", "forbidden sysctl: %q not allowed with host net enabled", s.Name)
		case !strings.HasPrefix(name, "net.") && pod.Spec.HostIPC:
			return reject("SysctlForbidden", "forbidden sysctl: %q not allowed with host ipc enabled", s.Name)
		}
	}
	return nil
}
