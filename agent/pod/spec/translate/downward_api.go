package translate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// Field returns a field of the pod, for an environment variable or the downward API.
// https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
func Field(pod *v1.Pod, path string, n Node) (string, error) {
	if name, key, ok := splitSubscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("field path %q is not supported", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return n.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return joinAddresses(n.IPs, path == "status.hostIPs", true)
	case "status.podIP", "status.podIPs":
		var ips []string
		for _, ip := range pod.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		return joinAddresses(ips, path == "status.podIPs", pod.Spec.HostNetwork)
	}
	return "", fmt.Errorf("field path %q is not supported", path)
}

// errNoAddress begins like a kubelet's error. The environment of a running container cannot change, so a container that refers to the host
// IP is not started before the node has an address.
var errNoAddress = errors.New("host IP unknown: this node has no address yet; " +
	"the container starts when the node has an address (or set --node-ip)")

// joinAddresses returns the addresses, separated by commas, or only the first one if all is false. If there is no address, it returns "",
// or errNoAddress if host is true.
func joinAddresses(ips []string, all, host bool) (string, error) {
	switch {
	case len(ips) == 0 && host:
		return "", errNoAddress
	case len(ips) == 0 || all:
		return strings.Join(ips, ","), nil
	}
	return ips[0], nil
}

// splitSubscript splits a path such as metadata.labels['key'].
func splitSubscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return name, strings.TrimSuffix(rest, "']"), true
}

// formatMap returns the entries as lines key="value", sorted by key, as in a kubelet.
func formatMap(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// ResourceField returns a request or limit of a container, in units of the selector's divisor and rounded up.
// The default for a limit is the pod's limit. If the pod's limit is not set either, the default is the node's
// allocatable amount.
// https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-resourceFieldRef
func ResourceField(pod *v1.Pod, ctr *v1.Container, sel *v1.ResourceFieldSelector, n Node) (string, error) {
	if sel.ContainerName != "" && (ctr == nil || sel.ContainerName != ctr.Name) {
		if _, ctr = podspec.Find(&pod.Spec, sel.ContainerName); ctr == nil {
			return "", fmt.Errorf("container %q is not in the pod", sel.ContainerName)
		}
	}
	if ctr == nil {
		return "", fmt.Errorf("resource %q: no container is selected (containerName is missing)", sel.Resource)
	}
	kind, s, _ := strings.Cut(sel.Resource, ".")
	name := v1.ResourceName(s)
	own := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
	if kind != "requests" && kind != "limits" || !own && !strings.HasPrefix(s, v1.ResourceHugePagesPrefix) {
		return "", fmt.Errorf("resource %q is not supported", sel.Resource)
	}
	q := ctr.Resources.Requests[name]
	if kind == "limits" {
		q = ctr.Resources.Limits[name]
		if r := pod.Spec.Resources; q.IsZero() && own && r != nil {
			q = r.Limits[name]
		}
		if q.IsZero() && own {
			q = n.Allocatable[name]
		}
	}
	if name == v1.ResourceCPU {
		return ceilDiv(q.MilliValue(), sel.Divisor.MilliValue(), 1000), nil
	}
	return ceilDiv(q.Value(), sel.Divisor.Value(), 1), nil
}

// ceilDiv divides a value by a divisor and rounds up. If the divisor is not positive, it divides by the parameter
// one, which is the default divisor.
func ceilDiv(v, by, one int64) string {
	if by <= 0 {
		by = one
	}
	whole := v / by
	if v%by > 0 {
		whole++
	}
	return fmt.Sprint(whole)
}

// Fields resolves field and resource references with the current state of the node. It is used by volumes of the downward API and by
// workers.
type Fields struct {
	Node func() Node // returns the current facts about the node
}

// Field resolves a field reference of a pod.
func (f Fields) Field(pod *v1.Pod, path string) (string, error) { return Field(pod, path, f.Node()) }

// Sizes returns the resources of each container and of the pod.
func (f Fields) Sizes(pod *v1.Pod) (map[string]plan.Size, plan.Resources) {
	n := f.Node()
	return Sizes(pod, n), PodLevel(pod, n)
}

// Resource resolves a resource reference for the container that the selector names.
func (f Fields) Resource(pod *v1.Pod, sel *v1.ResourceFieldSelector) (string, error) {
	return ResourceField(pod, nil, sel, f.Node())
}
