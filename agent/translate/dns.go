package translate

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits that the kubelet applies to a pod's resolv.conf.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

// DNS is the content of a resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// ParseResolv reads a resolv.conf. Lines that it does not know are skipped.
func ParseResolv(text string) DNS {
	var d DNS
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if len(f) > 1 {
				d.Servers = append(d.Servers, f[1])
			}
		case "search", "domain":
			d.Searches = nil
			for _, s := range f[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				d.Searches = append(d.Searches, s)
			}
		case "options":
			d.Options = merge(d.Options, f[1:])
		}
	}
	return d
}

// PodDNS is the pod's resolv.conf by its dnsPolicy and dnsConfig.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
func PodDNS(pod *v1.Pod, n Node) *api.DNSConfig {
	d := DNS{Servers: n.Resolv.Servers, Searches: n.Resolv.Searches, Options: n.Resolv.Options}
	policy := pod.Spec.DNSPolicy
	cluster := policy == v1.DNSClusterFirstWithHostNet || policy != v1.DNSDefault && policy != v1.DNSNone && !pod.Spec.HostNetwork
	switch {
	case policy == v1.DNSNone:
		d = DNS{}
	case cluster && len(n.ClusterDNS) > 0: // without a cluster's DNS: the host's
		d.Servers = n.ClusterDNS
		if dom := n.ClusterDomain; dom != "" {
			d.Searches = merge([]string{pod.Namespace + ".svc." + dom, "svc." + dom, dom}, d.Searches)
		}
		d.Options = []string{"ndots:5"}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		d.Servers = merge(d.Servers, c.Nameservers)
		d.Searches = merge(d.Searches, c.Searches)
		d.Options = mergeOptions(d.Options, c.Options)
	}
	return &api.DNSConfig{Servers: d.Servers[:min(len(d.Servers), maxNameservers)], Searches: boundSearches(d.Searches), Options: d.Options}
}

// merge appends what is not there yet.
func merge(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// mergeOptions lets the pod's options replace those of the same name.
func mergeOptions(host []string, pod []v1.PodDNSConfigOption) []string {
	out := slices.Clone(host)
	for _, o := range pod {
		s := o.Name
		if o.Value != nil {
			s += ":" + *o.Value
		}
		same := func(h string) bool { name, _, _ := strings.Cut(h, ":"); return name == o.Name }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i] = s
		} else {
			out = append(out, s)
		}
	}
	return out
}

func boundSearches(s []string) []string {
	s = s[:min(len(s), maxSearches)]
	for len(strings.Join(s, " ")) > maxSearchLength {
		s = s[:len(s)-1]
	}
	return s
}
