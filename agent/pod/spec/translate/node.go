package translate

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what the configurations need to know of the node. It may change while
// the agent runs: its addresses, its resolv.conf.
type Node struct {
	Name           string
	IPs            []string // the primary one first
	ClusterDNS     []string
	ClusterDomain  string
	Resolv         DNS      // the host's resolv.conf, or --resolv-conf
	NoResolv       bool     // --resolv-conf is empty: the node itself is the server
	LogDir         string   // of all pods; /var/log/pods
	SeccompDir     string   // of localhost profiles; <root-dir>/seccomp
	Throttles      []string // directories of /sys that containers do not see
	SeccompDefault bool     // RuntimeDefault for pods that do not say
	CPUPeriod      int64    // of CPU quotas, in microseconds; 0: 100 ms; negative: CPU limits are not enforced
	OOMGroup       bool     // out of memory kills a whole container; needs cgroup v2
	SwapCgroup     int      // the version of cgroups by which containers are kept from swap; 0: they cannot be
	MemoryBytes    int64    // capacity, for oom_score_adj and swap
	SwapBytes      int64    // of the host, where burstable containers get a part of it; 0: none does
	MemoryQoS      *QoS     // nil: nothing of memory is kept for containers, nor are they slowed
	Allocatable    v1.ResourceList
	// Exclusive reports whether a container has CPUs of its own, and so may use all of their
	// time; nil: none has.
	Exclusive func(uid types.UID, container string) bool
}

// PodLogDir is the directory of the pod's logs under dir, as the kubelet names it.
func PodLogDir(dir string, pod *v1.Pod) string {
	return dir + "/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
}

// The longest names of a pod's host, in bytes.
const (
	maxHostname = 63
	maxFullName = 64
)

// Hostname returns the pod's host name and, for a pod with a subdomain, its full
// domain name.
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

// kernelHostname is what the pod's programs get as the host's name: with
// setHostnameAsFQDN the full one, if the kernel has room for it.
func kernelHostname(pod *v1.Pod, clusterDomain string) (string, error) {
	host, fqdn := Hostname(pod, clusterDomain)
	if set := pod.Spec.SetHostnameAsFQDN; set == nil || !*set || fqdn == "" {
		return host, nil
	}
	if len(fqdn) > maxFullName { // in a kubelet's words
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is "+
			"the max, %d characters requested)", fqdn, maxFullName, len(fqdn))
	}
	return fqdn, nil
}
