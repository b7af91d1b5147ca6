package translate

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Node is what the configurations need to know of the node. It may change while
// the agent runs: its addresses, its resolv.conf.
type Node struct {
	Name           string
	IPs            []string // the primary one first
	ClusterDNS     []string
	ClusterDomain  string
	Resolv         DNS      // the host's resolv.conf, or --resolv-conf
	LogDir         string   // of all pods; /var/log/pods
	SeccompDir     string   // of localhost profiles; <root-dir>/seccomp
	Throttles      []string // directories of /sys that containers do not see
	SeccompDefault bool     // RuntimeDefault for pods that do not say
	CPUPeriod      int64    // of CPU quotas, in microseconds; 0: 100 ms; negative: CPU limits are not enforced
	OOMGroup       bool     // out of memory kills a whole container; needs cgroup v2
	SwapCgroup     int      // the version of cgroups by which containers are kept from swap; 0: they cannot be
	MemoryBytes    int64    // capacity, for oom_score_adj
	Allocatable    v1.ResourceList
}

// PodLogDir is the directory of the pod's logs under dir, as the kubelet names it.
func PodLogDir(dir string, pod *v1.Pod) string {
	return dir + "/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
}

const maxHostname = 63

// Hostname returns the pod's host name and, for a pod with a subdomain, its full
// domain name.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
func Hostname(pod *v1.Pod, clusterDomain string) (host, fqdn string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		return *o, "", nil
	}
	host = pod.Spec.Hostname
	if host == "" {
		host = pod.Name
	}
	if len(host) > maxHostname {
		host = strings.TrimRight(host[:maxHostname], "-.")
	}
	if pod.Spec.Subdomain != "" {
		fqdn = host + "." + pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + clusterDomain
	}
	if pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN && fqdn != "" {
		if len(fqdn) > 64 {
			return "", "", errors.New("pod's full name " + fqdn + " is longer than 64 characters, so it cannot be its host name: shorten it or unset setHostnameAsFQDN")
		}
		host = fqdn
	}
	return host, fqdn, nil
}
