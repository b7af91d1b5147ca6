package cni

import (
	"os/exec"
	"strings"
	"testing"
)

// inNode runs a program of the host in the node's namespace.
func (w *world) inNode(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s to make a firewall: %v", name, err)
	}
	var out []byte
	err = w.node.Do(func() (err error) {
		out, err = exec.Command(path, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

func TestPodsPassFirewallThatDropsByPolicy(t *testing.T) {
	firewalls := map[string]func(t *testing.T, w *world){
		"iptables": func(t *testing.T, w *world) {
			if !strings.Contains(w.inNode(t, "iptables", "-V"), "nf_tables") {
				t.Skip("iptables is legacy here")
			}
			w.inNode(t, "iptables", "-P", "FORWARD", "DROP")
			w.inNode(t, "ip6tables", "-P", "FORWARD", "DROP")
		},
		"nft": func(t *testing.T, w *world) {
			w.inNode(t, "nft", "add table inet fw; add chain inet fw forward { type filter hook forward priority 0; policy drop; }")
		},
	}
	for name, firewall := range firewalls {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"))
			check(t, n.Reconcile(t.Context(), nil))
			web := w.pod(t, n, "web", tcp(8080, 80))
			firewall(t, w)
			for range 2 {
				check(t, n.Ready()) // makes islet find the firewall
			}
			serve(t, web.ns, "web", 80)
			serve(t, w.outside, "outside", 80)
			wantAnswer(t, web.ns, "tcp", "192.0.2.2", 80, "outside sees 192.0.2.1")
			wantAnswer(t, web.ns, "tcp", "2001:db8::2", 80, "outside sees 2001:db8::1")
			wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "web sees 192.0.2.2")
			wantAnswer(t, w.outside, "tcp", "2001:db8::1", 8080, "web sees 2001:db8::2")
			defer func() {
				for range 2 {
					check(t, n.Clean(t.Context()))
				}
				if left := w.inNode(t, "nft", "list", "ruleset"); strings.Contains(left, "islet") {
					t.Errorf("rules are left:\n%s", left)
				}
				if left := w.inNode(t, "ip", "link"); strings.Contains(left, "islet0") {
					t.Errorf("interfaces are left:\n%s", left)
				}
			}()
			if name == "iptables" { // iptables must still be able to read its table
				rules := w.inNode(t, "iptables", "-S", "FORWARD")
				for _, want := range []string{"-A FORWARD -i islet0 -m comment", "-A FORWARD -o islet0 -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -m comment"} {
					if strings.Count(rules, want) != 1 {
						t.Errorf("rules are\n%swant once: %s", rules, want)
					}
				}
			}
		})
	}
}
