package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDNS(t *testing.T) {
	cluster := &api.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"}, Options: []string{"ndots:5"}}
	fromHost := &api.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"lan"}, Options: []string{"edns0"}}
	own := &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9", "10.96.0.10"}, Searches: []string{"lan", "own"}, Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "rotate"}}}
	for _, tt := range []struct {
		policy      v1.DNSPolicy
		hostNetwork bool
		config      *v1.PodDNSConfig
		noCluster   bool
		want        *api.DNSConfig
	}{
		{v1.DNSClusterFirst, false, nil, false, cluster},
		{"", false, nil, false, cluster},
		{v1.DNSClusterFirst, true, nil, false, fromHost},
		{v1.DNSClusterFirstWithHostNet, true, nil, false, cluster},
		{v1.DNSDefault, false, nil, false, fromHost},
		{v1.DNSClusterFirst, false, nil, true, fromHost},
		{v1.DNSNone, false, own, false, &api.DNSConfig{Servers: own.Nameservers, Searches: own.Searches, Options: []string{"ndots:2", "rotate"}}},
		{v1.DNSClusterFirst, false, own, false, &api.DNSConfig{Servers: []string{"10.96.0.10", "9.9.9.9"}, Searches: append(cluster.Searches[:4:4], "own"), Options: []string{"ndots:2", "rotate"}}},
	} {
		p, n := aPod(), aNode()
		p.Spec.DNSPolicy, p.Spec.HostNetwork, p.Spec.DNSConfig = tt.policy, tt.hostNetwork, tt.config
		if tt.noCluster {
			n.ClusterDNS = nil
		}
		got := PodDNS(p, n)
		if d := cmp.Diff(tt.want.Servers, got.Servers) + cmp.Diff(tt.want.Searches, got.Searches) + cmp.Diff(tt.want.Options,
			got.Options); d != "" {
			t.Errorf("%s, host network %v: %s", tt.policy, tt.hostNetwork, d)
		}
	}
	d := ParseResolv("# c\nnameserver 8.8.8.8 ; x\ndomain old\nsearch a. b\n\nbogus\noptions ndots:1 rotate\noptions rotate\nnameserver\n")
	if diff := cmp.Diff(DNS{Servers: []string{"8.8.8.8"}, Searches: []string{"a", "b"}, Options: []string{"ndots:1", "rotate"}}, d); diff != "" {
		t.Error(diff)
	}
}

// TestDNSLimits checks that DNS settings beyond a kubelet's limits are omitted. The warning is the same as in a kubelet.
func TestDNSLimits(t *testing.T) {
	many := func(n, length int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s%02d", strings.Repeat("s", length-2), i))
		}
		return out
	}
	search := "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
	for name, tt := range map[string]struct {
		change            func(*v1.PodSpec, *Node)
		servers, searches int
		warnings          []string
	}{
		"fits": {func(s *v1.PodSpec, _ *Node) {
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"1", "2"}, Searches: many(28, 10)}
		}, 3, 32, nil},
		"servers": {func(s *v1.PodSpec, _ *Node) { s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"2", "3", "4"}} }, 3, 4,
			[]string{"DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.96.0.10 2 3"}},
		"searches": {func(s *v1.PodSpec, _ *Node) { s.DNSConfig = &v1.PodDNSConfig{Searches: many(29, 3)} }, 1, 32, []string{"DNSConfigForming: " + search + "default.svc.cluster.local svc.cluster.local cluster.local lan " + strings.Join(many(28, 3), " ")}},
		"length": {func(s *v1.PodSpec, _ *Node) {
			s.DNSPolicy, s.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"1"}, Searches: many(30, 200)}
		}, 1, 10, []string{"DNSConfigForming: " + search + strings.Join(many(10, 200), " ")}},
		"one domain": {func(s *v1.PodSpec, _ *Node) {
			s.DNSPolicy, s.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"1"}, Searches: append(many(1, 254), "ok")}
		}, 1, 1, []string{"DNSConfigForming: " + search + "ok"}},
		"each once": {func(s *v1.PodSpec, n *Node) {
			n.Resolv.Servers, s.DNSPolicy, s.DNSConfig = []string{"1", "1", "1", "1"}, v1.DNSDefault, &v1.PodDNSConfig{Nameservers: []string{"1"}}
		}, 1, 1, nil},
		"no cluster's DNS": {func(_ *v1.PodSpec, n *Node) { n.ClusterDNS = nil }, 1, 1,
			[]string{`MissingClusterDNS: pod: "web_default(u1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`}},
	} {
		p, n := aPod(), aNode()
		tt.change(&p.Spec, &n)
		got := PodDNS(p, n)
		var warnings []string
		for _, w := range DNSWarnings(p, n) {
			warnings = append(warnings, w.Reason+": "+w.Message)
		}
		if len(got.Servers) != tt.servers || len(got.Searches) != tt.searches || !slices.Equal(warnings, tt.warnings) {
			t.Errorf("%s: %d servers, %d searches, %q", name, len(got.Servers), len(got.Searches), warnings)
		}
	}
}

// TestNoResolvConf checks that a node without resolv.conf is itself the DNS server of its pods. The servers have the node's address
// families.
func TestNoResolvConf(t *testing.T) {
	p, n := aPod(), aNode()
	p.Spec.DNSPolicy = v1.DNSDefault
	n.Resolv, n.NoResolv = DNS{}, true
	for _, tt := range []struct{ ips, want []string }{{nil, []string{"127.0.0.1"}}, {[]string{"10.0.0.1", "fd00::1"}, []string{"127.0.0.1", "::1"}}} {
		n.IPs = tt.ips
		if got := PodDNS(p, n); !slices.Equal(got.Servers, tt.want) || !slices.Equal(got.Searches, []string{"."}) {
			t.Error(got)
		}
	}
	p.Spec.DNSPolicy = v1.DNSClusterFirst
	if got := PodDNS(p, n); !slices.Equal(got.Servers, n.ClusterDNS) || len(got.Searches) != 3 {
		t.Error(got)
	}
}

func TestResolvLimits(t *testing.T) {
	for _, tt := range []struct {
		n, length int
		domain    string
		want      string
	}{
		{29, 5, "cluster.local", ""},
		{30, 5, "cluster.local", "Resolv.conf file '/r' contains search line consisting of more than 29 domains!"},
		{32, 5, "", ""},
		{33, 5, "", "Resolv.conf file '/r' contains search line consisting of more than 32 domains!"},
		{1, 254, "", `Resolv.conf file "/r" contains a search path which length is more than allowed 253 chars!`},
		{9, 240, "", "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"},
	} {
		d := DNS{Searches: slices.Repeat([]string{strings.Repeat("s", tt.length)}, tt.n)}
		if got := d.Limits("/r", tt.domain); got != tt.want {
			t.Errorf("%d of %d: %q", tt.n, tt.length, got)
		}
	}
}

func FuzzResolv(f *testing.F) {
	f.Add("nameserver 1\nsearch . a. b\noptions ndots:5 ndots:2\n")
	f.Fuzz(func(t *testing.T, text string) {
		n := aNode()
		n.Resolv = ParseResolv(text)
		p := aPod()
		p.Spec.DNSPolicy = v1.DNSDefault
		if got := PodDNS(p, n); len(got.Servers) > maxNameservers || len(got.Searches) > maxSearches ||
			len(strings.Join(got.Searches, " ")) > maxSearchLength {
			t.Error(got)
		}
	})
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 61) + ".-b"
	for _, tt := range []struct {
		change             func(*v1.PodSpec)
		host, fqdn, kernel string
	}{
		{func(*v1.PodSpec) {}, "web", "", "web"},
		{func(s *v1.PodSpec) { s.SetHostnameAsFQDN = ptr(true) }, "web", "", "web"},
		{func(s *v1.PodSpec) { s.Hostname, s.Subdomain = "h", "sub" }, "h", "h.sub.default.svc.cluster.local", "h"},
		{func(s *v1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", ptr(true) }, "web", "web.sub.default.svc.cluster.local", "web.sub.default.svc.cluster.local"},
		{func(s *v1.PodSpec) {
			s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = strings.Repeat("x", 34), "sub", ptr(true)
		}, strings.Repeat("x", 34), strings.Repeat("x", 34) + ".sub.default.svc.cluster.local", strings.Repeat("x", 34) + ".sub.default.svc.cluster.local"},
		{func(s *v1.PodSpec) {
			s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = strings.Repeat("x", 35), "sub", ptr(true)
		}, strings.Repeat("x", 35), strings.Repeat("x", 35) + ".sub.default.svc.cluster.local", ""},
		{func(s *v1.PodSpec) { s.Hostname = long }, strings.Repeat("a", 61), "", strings.Repeat("a", 61)},
		{func(s *v1.PodSpec) { s.HostnameOverride, s.Subdomain = ptr("over.ride"), "sub" }, "over.ride", "", "over.ride"},
		{func(s *v1.PodSpec) { s.HostnameOverride = &long }, strings.Repeat("a", 61), "", strings.Repeat("a", 61)},
	} {
		p := aPod()
		tt.change(&p.Spec)
		host, fqdn := Hostname(p, "cluster.local")
		kernel, err := kernelHostname(p, "cluster.local")
		if host != tt.host || fqdn != tt.fqdn || kernel != tt.kernel || (err != nil) != (tt.kernel == "") {
			t.Errorf("%q %q %q %v, not %q %q %q", host, fqdn, kernel, err, tt.host, tt.fqdn, tt.kernel)
		}
		if err != nil && err.Error() != "failed to construct FQDN from pod hostname and cluster domain, FQDN "+fqdn+
			" is too long (64 characters is the max, 65 characters requested)" {
			t.Error(err)
		}
	}
}

// TestInheritsDNS checks which pods have the DNS servers of the host: those whose resolv.conf lists a server that only the host's file has.
func TestInheritsDNS(t *testing.T) {
	for _, policy := range []v1.DNSPolicy{v1.DNSNone, v1.DNSDefault, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet} {
		for i := range 8 {
			p, n := aPod(), aNode()
			p.Spec.DNSPolicy, p.Spec.HostNetwork, p.Spec.DNSConfig = policy, i&1 != 0, &v1.PodDNSConfig{Nameservers: []string{"192.0.2.9"}}
			n.Resolv = DNS{Servers: []string{"192.0.2.8"}}
			if i&2 != 0 {
				n.ClusterDNS = nil
			}
			if i&4 != 0 {
				n.Resolv, n.NoResolv = DNS{}, true
			}
			want := slices.Contains(PodDNS(p, n).Servers, "192.0.2.8")
			if got := InheritsDNS(p, n); got != want {
				t.Errorf("%s, host network %v, %q, no file %v: %v", policy, p.Spec.HostNetwork, n.ClusterDNS, n.NoResolv, got)
			}
		}
	}
}
