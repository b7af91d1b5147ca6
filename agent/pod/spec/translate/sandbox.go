package translate

import (
	"maps"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// Sandbox returns the configuration of the pod's sandbox. The time at which the node first accepted the pod is stored
// as an annotation and copied to each following sandbox.
func Sandbox(pod *v1.Pod, n Node, attempt uint32, started time.Time) (*api.PodSandboxConfig, error) {
	cfg := &api.PodSandboxConfig{
		Metadata:     &api.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		LogDirectory: PodLogDir(n.LogDir, pod),
		DnsConfig:    PodDNS(pod, n),
		Labels:       map[string]string{},
		Annotations:  map[string]string{},
		Linux:        &api.LinuxPodSandboxConfig{SecurityContext: sandboxSecurity(pod), Sysctls: defaultSysctls(pod, n.Sysctls)},
	}
	maps.Copy(cfg.Labels, pod.Labels)
	maps.Copy(cfg.Labels, podLabels(pod))
	maps.Copy(cfg.Annotations, pod.Annotations)
	cfg.Annotations[keys.Started] = strconv.FormatInt(started.Unix(), 10)
	if !pod.Spec.HostNetwork {
		host, err := kernelHostname(pod, n.ClusterDomain)
		if err != nil {
			return nil, err
		}
		cfg.Hostname = host
		cfg.PortMappings = portMappings(pod)
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			cfg.Linux.Sysctls[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
		}
	}
	return cfg, nil
}

// defaultSysctls returns the sysctls of defaultPodSysctls that apply to the pod, because the pod has its own
// namespace for them. A pod that uses the host's network also uses the host's UTS namespace.
func defaultSysctls(pod *v1.Pod, defaults map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range defaults {
		namespace, _, _ := sysctl.GetNamespace(name)
		own := namespace == sysctl.IPCNamespace && !pod.Spec.HostIPC ||
			(namespace == sysctl.NetNamespace || namespace == sysctl.UTSNamespace) && !pod.Spec.HostNetwork
		if own {
			out[sysctl.NormalizeName(name)] = value
		}
	}
	return out
}

func podLabels(pod *v1.Pod) map[string]string {
	return map[string]string{keys.PodName: pod.Name, keys.PodNamespace: pod.Namespace, keys.PodUID: string(pod.UID)}
}

// portMappings returns the pod's host ports.
func portMappings(pod *v1.Pod) []*api.PortMapping {
	var out []*api.PortMapping
	for _, p := range podspec.PortsOnHost(&pod.Spec) {
		out = append(out, &api.PortMapping{Protocol: criProtocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort,
			HostIp: p.HostIP})
	}
	return out
}

func criProtocol(p v1.Protocol) api.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return api.Protocol_UDP
	case v1.ProtocolSCTP:
		return api.Protocol_SCTP
	}
	return api.Protocol_TCP
}

func sandboxSecurity(pod *v1.Pod) *api.LinuxSandboxSecurityContext {
	out := &api.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaceOptions(pod),
		Seccomp:          &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
	}
	for _, c := range podspec.Containers(&pod.Spec) {
		out.Privileged = out.Privileged || isPrivileged(c)
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return out
	}
	out.RunAsUser = int64Value(sc.RunAsUser)
	out.RunAsGroup = int64Value(sc.RunAsGroup)
	out.SupplementalGroups, out.SupplementalGroupsPolicy = supplementalGroups(pod)
	out.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	return out
}

func namespaceOptions(pod *v1.Pod) *api.NamespaceOption {
	o := &api.NamespaceOption{Network: api.NamespaceMode_POD, Pid: api.NamespaceMode_CONTAINER, Ipc: api.NamespaceMode_POD}
	if pod.Spec.HostNetwork {
		o.Network = api.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = api.NamespaceMode_NODE
	}
	if s := pod.Spec.ShareProcessNamespace; s != nil && *s {
		o.Pid = api.NamespaceMode_POD
	}
	if pod.Spec.HostPID {
		o.Pid = api.NamespaceMode_NODE
	}
	return o
}

func isPrivileged(c *v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

func int64Value(v *int64) *api.Int64Value {
	if v == nil {
		return nil
	}
	return &api.Int64Value{Value: *v}
}
