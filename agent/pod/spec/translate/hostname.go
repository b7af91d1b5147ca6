package translate

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

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

// kernelHostname returns the hostname to set in the pod's UTS namespace. With setHostnameAsFQDN this is the FQDN. If
// the FQDN is too long for the kernel, kernelHostname returns an error.
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
