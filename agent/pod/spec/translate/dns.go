package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These are a kubelet's limits for a resolv.conf. Some resolvers abort if a search domain is longer than
// maxSearchDomain.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#dns-search-domain-list-limits
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxSearchDomain = 253
)

// DNS is the content of a resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// ParseResolv parses a resolv.conf in the same way as a kubelet. Only the last search line is used. Of several
// options with the same name, only the last is used. Unknown lines are skipped.
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
		case "search":
			d.Searches = nil
			for _, s := range f[1:] {
				if s != "." {
					d.Searches = append(d.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range f[1:] {
				d.Options = setOption(d.Options, o)
			}
		}
	}
	return d
}

// Limits returns a kubelet's message if pods do not get all of the host's search domains, otherwise "".
func (d DNS) Limits(file, clusterDomain string) string {
	most := maxSearches
	if clusterDomain != "" {
		most -= 3
	}
	tooLong := func(s string) bool { return len(s) > maxSearchDomain }
	switch {
	case len(d.Searches) > most:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", file, most)
	case slices.ContainsFunc(d.Searches, tooLong):
		return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", file, maxSearchDomain)
	case len(strings.Join(d.Searches, " ")) > maxSearchLength:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", file, maxSearchLength)
	}
	return ""
}

// PodDNS returns the pod's resolv.conf, which depends on its dnsPolicy and dnsConfig.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
func PodDNS(pod *v1.Pod, n Node) *api.DNSConfig {
	d, _ := podDNS(pod, n)
	return &api.DNSConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
}

// InheritsDNS reports whether the resolv.conf of a pod contains the DNS servers of the host.
func InheritsDNS(pod *v1.Pod, n Node) bool {
	return pod.Spec.DNSPolicy != v1.DNSNone && (!wantsClusterDNS(pod) || len(n.ClusterDNS) == 0) && !n.NoResolv
}

func wantsClusterDNS(pod *v1.Pod) bool {
	policy := pod.Spec.DNSPolicy
	return policy == v1.DNSClusterFirstWithHostNet || policy != v1.DNSDefault && policy != v1.DNSNone && !pod.Spec.HostNetwork
}

// Reasons of warnings about DNS.
const (
	MissingClusterDNS = "MissingClusterDNS"
	DNSConfigForming  = "DNSConfigForming"
)

// A Warning is an event about a pod that is started nevertheless.
type Warning struct{ Reason, Message string }

// DNSWarnings returns the parts of the pod's DNS configuration that are missing or omitted, as a kubelet's messages.
func DNSWarnings(pod *v1.Pod, n Node) []Warning {
	_, all := podDNS(pod, n)
	return all
}

func podDNS(pod *v1.Pod, n Node) (d DNS, warnings []Warning) {
	d = DNS{Servers: n.Resolv.Servers, Searches: n.Resolv.Searches, Options: n.Resolv.Options}
	cluster := wantsClusterDNS(pod)
	switch {
	case pod.Spec.DNSPolicy == v1.DNSNone:
		d = DNS{}
	case cluster && len(n.ClusterDNS) > 0:
		d.Servers = n.ClusterDNS
		if dom := n.ClusterDomain; dom != "" {
			d.Searches = mergeLists([]string{pod.Namespace + ".svc." + dom, "svc." + dom, dom}, d.Searches)
		}
		d.Options = []string{"ndots:5"}
	default: // also if the cluster's DNS servers are unknown
		if cluster {
			warnings = append(warnings, Warning{MissingClusterDNS,
				fmt.Sprintf("pod: \"%s_%s(%s)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
					"Falling back to %q policy.", pod.Name, pod.Namespace, pod.UID, v1.DNSClusterFirst, v1.DNSDefault)})
		}
		if n.NoResolv {
			d.Servers, d.Searches = loopbackServers(n.IPs), []string{"."}
		}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		d.Servers, d.Searches, d.Options = mergeLists(d.Servers, c.Nameservers), mergeLists(d.Searches, c.Searches), slices.Clone(d.Options)
		for _, o := range c.Options {
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			d.Options = setOption(d.Options, text)
		}
	}
	limit := func(what string, cut bool, kept []string) {
		if cut {
			warnings = append(warnings, Warning{DNSConfigForming, what + strings.Join(kept, " ")})
		}
	}
	before := len(d.Servers)
	d.Servers = d.Servers[:min(before, maxNameservers)]
	limit("Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ",
		len(d.Servers) < before, d.Servers)
	before = len(d.Searches)
	d.Searches = boundSearches(d.Searches)
	limit("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ",
		len(d.Searches) < before, d.Searches)
	return d, warnings
}

// loopbackServers returns the DNS servers of a pod for which no server is configured: a loopback address for each
// of the node's IPs, in the same address family.
func loopbackServers(ips []string) (servers []string) {
	for _, s := range ips {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1"}
	}
	return servers
}

// mergeLists returns the values of both lists without duplicates.
func mergeLists(a, b []string) (out []string) {
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// setOption adds an option name:value. It replaces an existing option with the same name.
func setOption(all []string, o string) []string {
	name, _, _ := strings.Cut(o, ":")
	same := func(h string) bool { of, _, _ := strings.Cut(h, ":"); return of == name }
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i] = o
		return all
	}
	return append(all, o)
}

func boundSearches(s []string) []string {
	s = slices.DeleteFunc(slices.Clone(s[:min(len(s), maxSearches)]), func(s string) bool { return len(s) > maxSearchDomain })
	for len(strings.Join(s, " ")) > maxSearchLength {
		s = s[:len(s)-1]
	}
	return s
}
