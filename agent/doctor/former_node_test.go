package doctor

import (
	"context"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func device(name, kind string, users int, addresses ...string) Interface {
	i := Interface{Name: name, Index: 7, Kind: kind, Users: users}
	for _, a := range addresses {
		i.Addresses = append(i.Addresses, netip.MustParsePrefix(a))
	}
	return i
}

// TestFormerNode checks the findings about the remains of a former node. Each case adds one of these remains to the healthy board. The
// field removes lists the interfaces that certainly belong to no running program.
func TestFormerNode(t *testing.T) {
	scripts := regexp.MustCompile(`killall|uninstall|k0s reset|snap remove`)
	flannel := `{"name": "cbr0", "plugins": [{"type": "flannel"}]}`
	for _, c := range []struct {
		name       string
		interfaces []Interface
		files      map[string]string
		chains     string
		want       string // severity and ID; empty: no finding
		says       string
		removes    string
		alone      bool   // the node is not in a cluster
		runs       bool   // an agent of islet runs
		not        string // ID of a finding that must not be reported
	}{
		{name: "clean", interfaces: []Interface{device("eth0", "device", 0, "192.168.0.7/24"), device("islet0", "bridge", 2, "10.42.0.1/24")}, want: "ok former-node"},
		{name: "bridge with the pods' gateway", interfaces: []Interface{device("cni0", "bridge", 0, "10.42.0.1/24")}, want: "error former-interface", says: "doctor --fix", removes: "cni0"},
		{name: "bridge with the gateway and a wider network", interfaces: []Interface{device("cni0", "bridge", 0, "10.42.0.1/16")}, want: "error former-interface", removes: "cni0"},
		{name: "bridge of another network", interfaces: []Interface{device("cni0", "bridge", 0, "10.244.3.1/24")}, want: "info former-interface", removes: "cni0"},
		{name: "somebody's bridge with the pods' network", interfaces: []Interface{device("virbr0", "bridge", 0, "10.42.0.9/24")}, want: "error former-interface", says: "if it is not used"},
		{name: "with ports", interfaces: []Interface{device("cni0", "bridge", 3, "10.42.0.1/24")}, want: "error former-interface", says: "3 interfaces are attached to it"},
		{name: "a port itself", interfaces: []Interface{{Name: "cni0", Kind: "bridge", Port: true}}, want: "info former-interface", says: "reboot"},
		{name: "k3s runs", interfaces: []Interface{device("cni0", "bridge", 0, "10.42.0.1/24")}, files: map[string]string{"proc/9/comm": "k3s-server"}, want: "error former-interface", says: "in use by k3s-server (process 9)"},
		{name: "the network card has the network", interfaces: []Interface{device("eth0", "device", 0, "10.42.0.7/24")}, want: "ok former-node"},
		{name: "flannel's", interfaces: []Interface{device("flannel.1", "vxlan", 0, "10.42.0.0/32")}, want: "info former-interface", removes: "flannel.1"},
		{name: "kube-proxy's", interfaces: []Interface{device("kube-ipvs0", "dummy", 0, "10.43.0.1/32")}, want: "info former-interface", removes: "kube-ipvs0"},
		{name: "kube-proxy runs", interfaces: []Interface{device("kube-ipvs0", "dummy", 0)}, files: map[string]string{"proc/9/comm": "kube-proxy"}, want: "ok former-node"},
		{name: "another thing of the name", interfaces: []Interface{device("cni0", "vlan", 0)}, want: "ok former-node"},
		{name: "podman's", interfaces: []Interface{device("cni-podman0", "bridge", 0, "10.88.0.1/16"), device("docker0", "bridge", 0, "172.17.0.1/16")}, want: "ok former-node"},
		{name: "an add-on's", interfaces: []Interface{device("cni0", "bridge", 0, "10.244.0.1/24"), device("flannel.1", "vxlan", 0)}, files: map[string]string{"etc/cni/net.d/1.conflist": flannel, "opt/flannel": ""}, want: "ok former-node"},
		{name: "an add-on that is gone", files: map[string]string{"etc/cni/net.d/1.conflist": flannel}, want: "error former-conflist", says: "remove /etc/cni/net.d/1.conflist"},
		{name: "an add-on that is gone, of a node that stands alone", alone: true, files: map[string]string{"etc/cni/net.d/1.conflist": flannel}, want: "warning former-conflist", says: "built-in network", not: "network"},
		{name: "a broken configuration", files: map[string]string{"etc/cni/net.d/1.conflist": "half"}, want: "error cni-configuration", says: "repair /etc/cni/net.d/1.conflist"},
		{name: "a broken configuration behind a good one", files: map[string]string{"etc/cni/net.d/1.conflist": flannel, "etc/cni/net.d/2.conflist": "half", "opt/flannel": ""}, want: "ok former-node"},
		{name: "a broken configuration, of a node that stands alone", alone: true, files: map[string]string{"etc/cni/net.d/1.conflist": "half"}, want: "warning cni-configuration", says: "built-in network", not: "network"},
		{name: "a broken configuration before a good one, of a node that stands alone", alone: true, files: map[string]string{"etc/cni/net.d/1.conflist": "half", "etc/cni/net.d/2.conflist": flannel, "opt/flannel": ""}, want: "info network", says: "replaces"},
		{name: "an add-on of a node that stands alone", alone: true, files: map[string]string{"etc/cni/net.d/1.conflist": flannel, "opt/flannel": ""}, want: "info network", says: "replaces"},
		{name: "shims without a runtime", files: map[string]string{"proc/8/comm": "containerd-shim", "proc/9/comm": "containerd-shim"}, want: "warning former-containers", says: "2 shims"},
		{name: "shims of a runtime", files: map[string]string{"proc/8/comm": "containerd-shim", "proc/9/comm": "containerd"}, want: "ok former-node"},
		{name: "chains", chains: "table ip nat {\n\tchain KUBE-SERVICES {\n\t}\n\tchain CNI-HOSTPORT-DNAT {\n\t}\n\tchain POSTROUTING {\n", want: "warning former-rules", says: "2 chains"},
		{name: "chains of one that runs", chains: "chain KUBE-SERVICES {", files: map[string]string{"proc/9/comm": "kube-proxy"}, want: "ok former-node"},
		{name: "k3s at boot", files: map[string]string{"etc/systemd/system/multi-user.target.wants/k3s.service": "x"}, want: "warning former-unit", says: "disable --now k3s"},
		{name: "k3s' files", files: map[string]string{"var/lib/rancher/k3s/agent/x": "x"}, want: "info former-files", says: "/agent/containerd, but not"},
		{name: "k3s' volumes, under islet", files: map[string]string{"var/lib/rancher/k3s/storage/pvc-1/x": "x"}, runs: true, want: "info former-files", says: "not the volumes"},
		{name: "rke2's files", files: map[string]string{"var/lib/rancher/rke2/agent/x": "x"}, runs: true, want: "info former-files", says: "rke2"},
		{name: "k0s' files", files: map[string]string{"var/lib/k0s/containerd/x": "x"}, runs: true, want: "info former-files", says: "k0s"},
		{name: "files of microk8s", files: map[string]string{"var/snap/microk8s/common/default-storage/x": "x"}, runs: true, want: "info former-files", says: "microk8s"},
		{name: "ports, under islet", interfaces: []Interface{device("cni0", "bridge", 3, "10.42.0.1/24")}, runs: true, want: "error former-interface", says: "reboot"},
		{name: "shims, under islet", files: map[string]string{"proc/9/comm": "containerd-shim"}, runs: true, want: "warning former-containers", says: "reboot"},
		{name: "k3s beside islet", files: map[string]string{"proc/9/comm": "k3s-agent"}, runs: true, want: "warning other-node", says: "islet doctor --migrate"},
		{name: "API server", files: map[string]string{"proc/net/tcp6": "h\n 0: 00:192B 0:0 0A\n"}, want: "info former-port", says: "6443"},
		{name: "pods of a kubelet that is gone", files: map[string]string{"sys/fs/cgroup/kubepods/burstable/podx/c1/cgroup.procs": "9", "sys/fs/cgroup/kubepods/burstable/podx/cgroup.procs": ""}, want: "warning leftover-cgroups", says: "processes run in 1 cgroups"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := board()
			for name, text := range c.files {
				f[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if c.runs {
				f["proc/8/comm"], f["proc/8/exe"] = &fstest.MapFile{Data: []byte("islet")}, f["proc/42/exe"]
			}
			in, sys := input(f), system()
			in.CNIConfDir = "/etc/cni/net.d"
			_, there := c.files["opt/flannel"]
			in.HasPlugin = func(kind string) bool { return there || kind != "flannel" }
			in.BrokenCNI = func(file string) error {
				if !strings.HasPrefix(c.files[strings.TrimPrefix(file, "/")], "{") {
					return errors.New(file + ": unexpected end")
				}
				return nil
			}
			in.ForeignNetwork, in.Standalone = c.files["etc/cni/net.d/1.conflist"] != "", c.alone
			in.Interfaces = func() ([]Interface, error) { return c.interfaces, nil }
			var removed []string
			in.RemoveInterface = func(name string, _ int) error { removed = append(removed, name); return nil }
			if c.chains != "" {
				sys.Find = func(name string) (string, error) { return "/usr/bin/" + name, nil }
				old := sys.Output
				sys.Output = func(ctx context.Context, path string, args ...string) (string, error) {
					if path == "/usr/bin/nft" && slices.Contains(args, "chains") {
						return c.chains, nil
					}
					return old(ctx, path, args...)
				}
			}
			findings := Check(context.Background(), in, sys)
			if !slices.ContainsFunc(findings, func(f Finding) bool {
				return f.Severity.String()+" "+f.ID == c.want && strings.Contains(f.What+f.Advice, c.says)
			}) {
				t.Errorf("no %q that says %q in %+v", c.want, c.says, findings)
			}
			if c.not != "" && slices.ContainsFunc(findings, func(f Finding) bool { return f.ID == c.not }) {
				t.Errorf("%q does not belong into %+v", c.not, findings)
			}
			// Scripts of another program also delete the volumes of islet's pods below /var/lib/kubelet.
			if i := slices.IndexFunc(findings, func(f Finding) bool { return scripts.MatchString(f.What + f.Advice) }); i >= 0 {
				t.Errorf("%+v names a script", findings[i])
			}
			var dry, done strings.Builder
			if n, err := Fix(&dry, findings, true); err != nil || (n > 0) != (c.removes != "") || len(removed) > 0 {
				t.Errorf("a dry run has %d remedies (%v) and removed %v", n, err, removed)
			}
			if _, err := Fix(&done, findings, false); err != nil || strings.Join(removed, " ") != c.removes {
				t.Errorf("removed %v: %v", removed, err)
			}
			if c.removes != "" && (!strings.Contains(dry.String(), "would remove interface "+c.removes) ||
				!strings.Contains(done.String(), "removed interface "+c.removes)) {
				t.Errorf("says %q and %q", dry.String(), done.String())
			}
		})
	}
}

func TestFixFails(t *testing.T) {
	in := input(board())
	in.Interfaces = func() ([]Interface, error) { return []Interface{device("cni0", "bridge", 0, "10.42.0.1/24")}, nil }
	in.RemoveInterface = func(string, int) error { return errors.New("interface cni0 is in use") }
	var b strings.Builder
	if n, err := Fix(&b, Check(context.Background(), in, system()), false); n != 1 || err == nil ||
		!strings.Contains(b.String(), "could not remove interface cni0: interface cni0 is in use") {
		t.Errorf("%d, %v: %s", n, err, b.String())
	}
}
