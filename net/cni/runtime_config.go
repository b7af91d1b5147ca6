package cni

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/net/portmap"
)

// capabilityArgs returns the capability arguments for CNI plugins. The keys are the names of the capabilities. libcni passes an argument
// only to plugins that declare this capability.
func capabilityArgs(cfg *api.PodSandboxConfig) (map[string]any, error) {
	args := map[string]any{}
	if ports := hostPorts(cfg); len(ports) > 0 {
		for i := range ports {
			ports[i].Protocol = strings.ToLower(ports[i].Protocol)
		}
		args["portMappings"] = ports
	}
	if dns := cfg.GetDnsConfig(); dns != nil {
		args["dns"] = map[string]any{"servers": dns.Servers, "searches": dns.Searches, "options": dns.Options}
	}
	if parent := cfg.GetLinux().GetCgroupParent(); parent != "" {
		args["cgroupPath"] = parent
	}
	annotations := cfg.GetAnnotations()
	bandwidth := map[string]uint64{}
	for name, field := range map[string]string{keys.IngressBandwidth: "ingress", keys.EgressBandwidth: "egress"} {
		text := annotations[name]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() < 1000 || q.Value() > 1e15 {
			return nil, fmt.Errorf("annotation %s: %q is not a bandwidth between 1k and 1P", name, text)
		}
		bandwidth[field+"Rate"], bandwidth[field+"Burst"] = uint64(q.Value()), 1<<31-1
	}
	if len(bandwidth) > 0 {
		args["bandwidth"] = bandwidth
	}
	if ips := annotations[keys.IPs]; ips != "" {
		args["ips"] = strings.Split(ips, ",")
	}
	if mac := annotations[keys.MAC]; mac != "" {
		args["mac"] = mac
	}
	return args, nil
}

// hostPorts returns the host ports of a sandbox.
func hostPorts(cfg *api.PodSandboxConfig) []portmap.Mapping {
	var out []portmap.Mapping
	for _, p := range cfg.GetPortMappings() {
		if p.GetHostPort() <= 0 {
			continue
		}
		out = append(out, portmap.Mapping{
			HostPort: int(p.HostPort), ContainerPort: int(p.ContainerPort), Protocol: p.Protocol.String(), HostIP: p.HostIp,
		})
	}
	return out
}
