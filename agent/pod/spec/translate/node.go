package translate

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node contains the facts about the node that the configurations need. Its addresses and resolv.conf may change while
// the agent runs.
type Node struct {
	Name           string
	IPs            []string // the primary address first
	ClusterDNS     []string
	ClusterDomain  string
	Resolv         DNS      // from the host's resolv.conf or --resolv-conf
	NoResolv       bool     // --resolv-conf is empty: the node itself is the DNS server
	LogDir         string   // of all pods: /var/log/pods
	SeccompDir     string   // directory of Localhost profiles: <root-dir>/seccomp
	Throttles      []string // directories of /sys that are hidden from containers
	SeccompDefault bool     // RuntimeDefault is the default profile
	CPUPeriod      int64    // of CPU quotas, in microseconds; 0 means 100 ms; negative: CPU limits are not enforced
	OOMGroup       bool     // the OOM killer kills all processes of a container; needs cgroup v2
	SwapCgroup     int      // cgroup version of the swap limits; 0 if there are none
	MemoryBytes    int64    // memory capacity, for oom_score_adj and swap
	SwapBytes      int64    // swap of the host that burstable containers share; 0 if they get none
	MemoryQoS      *QoS     // nil: no memory protection and throttling
	Allocatable    v1.ResourceList
	Sysctls        map[string]string // defaultPodSysctls: the values of a pod that does not set them, if it has the namespace itself
	// Exclusive reports whether a container has exclusive CPUs, which it uses without a CPU quota. It may be nil.
	Exclusive func(uid types.UID, container string) bool
}

// PodLogDir returns the directory of the pod's logs below dir, as a kubelet names it.
func PodLogDir(dir string, pod *v1.Pod) string {
	return dir + "/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
}

// The maximum lengths of a pod's hostname and FQDN in bytes.
const (
	maxHostname = 63
	maxFullName = 64
)

// Hostname returns the pod's hostname and, for a pod with a subdomain, its FQDN.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/ (hostnameOverride: KEP-4762)
func Hostname(pod *v1.Pod, clusterDomain string) (host, fqdn string) {
	override := pod.Spec.HostnameOverride
	if override != nil {
		host = *override
	} else {
		host = cmp.Or(pod.Spec.Hostname, pod.Name)
	}
	if len(host) > maxHostname {
		host = strings.TrimRight(host[:maxHostname], "-.")
	}
	if pod.Spec.Subdomain != "" && override == nil {
		fqdn = host + "." + pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + clusterDomain
	}
	return host, fqdn
}

// kernelHostname returns the hostname to set in the pod's UTS namespace. With setHostnameAsFQDN it is the FQDN, or an
// error if that is too long for the kernel.
func kernelHostname(pod *v1.Pod, clusterDomain string) (string, error) {
	host, fqdn := Hostname(pod, clusterDomain)
	if set := pod.Spec.SetHostnameAsFQDN; set == nil || !*set || fqdn == "" {
		return host, nil
	}
	if len(fqdn) > maxFullName { // a kubelet's message
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is "+
			"the max, %d characters requested)", fqdn, maxFullName, len(fqdn))
	}
	return fqdn, nil
}
