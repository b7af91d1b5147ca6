package cni

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMain runs the test program as a CNI plugin if the program was started under the name of a plugin.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); IsPlugin(name) {
		os.Exit(Main(name, os.Args))
	}
	os.Exit(eventtest.Main(m, "cni"))
}

// chained returns a conflist like those in installation guides.
func (w *world) chained(version string) string {
	return fmt.Sprintf(`{"cniVersion": %q, "name": "podnet", "plugins": [
		{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true, "vlan": 0,
		 "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}},
		{"type": "portmap", "capabilities": {"portMappings": true}},
		{"type": "loopback"}]}`, version, w.dir+"/host-local")
}

func (w *world) conf(t testing.TB, name, content string) func(*Config) {
	t.Helper()
	dir := filepath.Join(w.dir, "net.d")
	check(t, os.MkdirAll(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	return func(c *Config) { c.ConfDir = dir }
}

func tcp(host, container int32) *api.PortMapping {
	return &api.PortMapping{HostPort: host, ContainerPort: container}
}

func TestConflistOfBuiltInTypes(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, w.conf(t, "10-podnet.conflist", w.chained(version)))
			check(t, n.Reconcile(t.Context(), nil))
			check(t, n.Ready())
			web, other := w.pod(t, n, "web", tcp(8080, 80)), w.pod(t, n, "other")
			if fmt.Sprint(web.addrs, other.addrs) != "[10.88.0.2 fd00:88::2] [10.88.0.3 fd00:88::3]" {
				t.Fatalf("addresses are %v and %v", web.addrs, other.addrs)
			}
			w.talk(t, web, other, "10.88.0.1", "fd00:88::1")
			again, err := n.Setup(t.Context(), web.id, web.path, web.cfg)
			if err != nil || fmt.Sprint(again) != fmt.Sprint(web.addrs) {
				t.Errorf("again: %v, %v", again, err)
			}
			for range 2 {
				check(t, n.Teardown(t.Context(), web.id, web.path, web.cfg))
			}
			check(t, n.Teardown(t.Context(), other.id, "/gone", other.cfg))
			w.clean(t)
		})
	}
}

// talk checks the connections to and from two pods. The first pod has host port 8080.
func (w *world) talk(t *testing.T, web, other *pod, gateways ...string) {
	t.Helper()
	serve(t, web.ns, "web", 80)
	serve(t, w.outside, "outside", 80)
	for at, addr := range web.addrs {
		node, client := nodeAddrs[at], []string{"192.0.2.2", "2001:db8::2"}[at]
		wantAnswer(t, other.ns, "tcp", addr.String(), 80, "web sees "+other.addrs[at].String())
		wantAnswer(t, other.ns, "tcp", client, 80, "outside sees "+node)
		wantAnswer(t, w.outside, "tcp", node, 8080, "web sees "+client)
		wantAnswer(t, web.ns, "tcp", node, 8080, "web sees "+gateways[at])
		wantAnswer(t, other.ns, "tcp", node, 8080, "web sees "+gateways[at])
		wantAnswer(t, w.node, "tcp", node, 8080, "web sees "+node)
	}
	wantAnswer(t, w.node, "tcp", "127.0.0.1", 8080, "web sees "+gateways[0])
}

// clean checks that no veth, lease, rule or file of a pod is left.
func (w *world) clean(t *testing.T) {
	t.Helper()
	if left := w.links(t); len(left) > 0 {
		t.Errorf("interfaces are left: %v", left)
	}
	if left, _ := w.leases.Leases(t.Context()); len(left) > 0 {
		t.Errorf("leases are left: %v", left)
	}
	for _, dir := range []string{"ports", "attachments", "cache/results", "netns", "host-local/podnet"} {
		files, _ := os.ReadDir(filepath.Join(w.dir, dir))
		for _, f := range files {
			if _, err := netip.ParseAddr(f.Name()); err == nil || !strings.HasPrefix(dir, "host") {
				t.Errorf("left in %s: %s", dir, f.Name())
			}
		}
	}
	for _, name := range []string{"islet", "islet_cni"} {
		left, err := nft.Load(w.node, name)
		check(t, err)
		if name == "islet" {
			left.Masquerade, left.Local = nil, nil
		}
		if len(left.Ports)+len(left.Masquerade)+len(left.Local) > 0 {
			t.Errorf("left in table %s: %+v", name, left)
		}
	}
}

// links returns the veth interfaces of the node. The uplink is not included.
func (w *world) links(t testing.TB) []string {
	t.Helper()
	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	all, err := h.LinkList()
	check(t, err)
	var names []string
	for _, l := range all {
		if l.Type() == "veth" && l.Attrs().Name != "wan0" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// buildDelegate builds testdata/delegate, a third-party plugin. The returned function sets BinDirs to its directory.
func buildDelegate(t *testing.T) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "delegate"), "./testdata/delegate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func(c *Config) { c.BinDirs = []string{dir} }
}

func TestConflistOfThirdPartyThatDelegates(t *testing.T) {
	w := newWorld(t)
	refuse := filepath.Join(w.dir, "refuse")
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "podnet", "plugins": [
		{"type": "delegate", "refuse": %q, "delegate": {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true,
		  "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.88.0.0/24"}}},
		{"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}`, refuse, w.dir+"/host-local")
	n := w.network(t, w.conf(t, "10-delegate.conflist", conf), buildDelegate(t))
	self, err := os.Executable()
	check(t, err)
	for range 2 {
		check(t, Install(w.dir, self))
	}
	check(t, n.Reconcile(t.Context(), nil))
	check(t, n.Ready())
	web, other := w.pod(t, n, "web", tcp(8080, 80)), w.pod(t, n, "other")
	w.talk(t, web, other, "10.88.0.1")

	// One pod has ended while no agent was running. The other pod ends later.
	n = w.network(t, func(c *Config) { *c = n.cfg })
	check(t, n.Reconcile(t.Context(), []string{web.id}))
	if left := w.links(t); len(left) != 1 {
		t.Errorf("interfaces after reconcile: %v", left)
	}
	wantAnswer(t, w.outside, "tcp", nodeAddrs[0], 8080, "web sees 192.0.2.2")
	check(t, n.Reconcile(t.Context(), nil))
	w.clean(t)

	check(t, os.WriteFile(refuse, nil, 0o600))
	n = w.network(t, func(c *Config) { *c = n.cfg })
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("ready although STATUS fails: %v", err)
	}
}

func TestConfigurationChanges(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "net.d")
	n := w.network(t, func(c *Config) { c.ConfDir = dir })
	check(t, n.Ready()) // a missing directory is not an error
	if got := n.Config(); got != BuiltIn {
		t.Errorf("configuration: %s", got)
	}
	isBuiltIn := w.pod(t, n, "own")
	if isBuiltIn.addrs[0].String() != "10.42.0.2" {
		t.Errorf("own network: %v", isBuiltIn.addrs)
	}
	w.conf(t, "50-late.conflist", w.chained("1.0.0"))
	_, path := netnstest.New(t)
	if _, err := n.Setup(t.Context(), "early", path, nil); err == nil || !strings.Contains(err.Error(), "are still on") {
		t.Errorf("beside a pod on the built-in network: %v", err)
	}
	check(t, n.Teardown(t.Context(), isBuiltIn.id, isBuiltIn.path, isBuiltIn.cfg))
	n.finishMove(false)
	if got := w.pod(t, n, "late").addrs[0].String(); got != "10.88.0.2" {
		t.Errorf("after a configuration came: %s", got)
	}
	if got := n.Config(); got != filepath.Join(dir, "50-late.conflist") {
		t.Errorf("configuration: %s", got)
	}
	for _, c := range []struct{ content, problem string }{
		{`{"name": "half`, "10-half.conflist"},
		{"", "10-half.conflist"}, // an empty file, as after a power failure
		{`{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nowhere"}]}`, `plugin "nowhere" is not in`},
		{"gone", "50-late.conflist was removed"},
	} {
		w.conf(t, "10-half.conflist", c.content)
		if c.content == "gone" {
			check(t, os.RemoveAll(dir))
		}
		check(t, n.Ready())
		if err := n.Problem(); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q: the problem is %v", c.content, err)
		}
	}
	if got := w.pod(t, n, "later").addrs[0].String(); got != "10.88.0.3" {
		t.Errorf("on the last good configuration: %s", got)
	}
	check(t, n.Reconcile(t.Context(), nil))
	w.clean(t)
}

// TestFirstConfigurationIsBroken checks a node in a cluster whose first configuration is invalid. Pods get an error. The node does not use
// the built-in network instead.
func TestFirstConfigurationIsBroken(t *testing.T) {
	for _, content := range []string{"", `{"name": "half`, `{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nowhere"}]}`} {
		w := newWorld(t)
		n := w.network(t, w.conf(t, "1.conflist", content))
		check(t, n.Reconcile(t.Context(), nil))
		_, path := netnstest.New(t)
		if _, err := n.Setup(t.Context(), "pod", path, nil); err == nil || n.Ready() == nil || n.CheckPodNetwork() == nil {
			t.Errorf("%q: a pod gets a network (%v)", content, err)
		}
		w.pristine(t)
	}
}

// TestConflistAfterPowerLoss interrupts an ADD after the plugins have run. The result is not stored yet.
func TestConflistAfterPowerLoss(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.conf(t, "1.conflist", w.chained("0.4.0")))
	half := w.pod(t, n, "half", tcp(8080, 80))
	w.pod(t, n, "dead", tcp(8081, 80))
	check(t, os.RemoveAll(filepath.Join(w.dir, "cache")))
	w.conf(t, "1.conflist", `{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "nowhere"}]}`) // the configuration changes before the restart
	n = w.network(t, func(c *Config) { *c = n.cfg })
	check(t, n.Reconcile(t.Context(), []string{half.id}))
	if left := w.links(t); len(left) != 1 {
		t.Errorf("interfaces are left: %v", left)
	}
	w.conf(t, "1.conflist", w.chained("0.4.0"))
	addrs, err := n.Setup(t.Context(), half.id, half.path, half.cfg)
	check(t, err)
	half.addrs = addrs
	w.talk(t, half, w.pod(t, n, "other"), "10.88.0.1", "fd00:88::1")
	check(t, n.Reconcile(t.Context(), nil))
	w.clean(t)
}

func TestConfOfOnePlugin(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.conf(t, "99.conf", fmt.Sprintf(`{"cniVersion": "0.3.1", "name": "podnet", "type": "bridge", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.88.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}`, w.dir+"/host-local")))
	p := w.pod(t, n, "pod")
	serve(t, w.node, "node", 80)
	wantAnswer(t, p.ns, "tcp", nodeAddrs[0], 80, "node sees 10.88.0.2")
	check(t, n.Teardown(t.Context(), p.id, p.path, p.cfg))
	w.clean(t)
}

func TestUnsupportedFieldIsNamed(t *testing.T) {
	w := newWorld(t)
	for _, conf := range []string{`"type": "bridge", "vlan": 7`, `"type": "portmap", "conditionsV4": ["x"]`, `"type": "loopback", "typo": true`} {
		n := w.network(t, w.conf(t, "1.conf", `{"cniVersion": "1.0.0", "name": "x", `+conf+`}`))
		_, path := netnstest.New(t)
		_, err := n.Setup(t.Context(), "pod", path, nil)
		field := strings.Split(conf, `"`)[5]
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", conf, err)
		}
		check(t, n.Reconcile(t.Context(), nil))
	}
}

// TestInstalledPluginOfABuiltInType checks that the installed plugin runs if the built-in one of the same name does not support the
// configuration, for each command, and that islet doctor reports no problem in that case.
func TestInstalledPluginOfABuiltInType(t *testing.T) {
	for _, version := range []string{"1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) { testInstalledPlugin(t, version) })
	}
}

func testInstalledPlugin(t *testing.T, version string) {
	w := newWorld(t)
	content := `{"cniVersion": "` + version + `", "name": "x", "plugins": [{"type": "bridge", "vlan": 7}, {"type": "loopback"}]}`
	n := w.network(t, w.conf(t, "1.conflist", content), func(c *Config) { c.BinDirs = []string{w.dir} })
	file := filepath.Join(n.cfg.ConfDir, "1.conflist")
	if err := CheckFile(n.cfg.BinDirs, file); err == nil || !strings.Contains(err.Error(), "vlan") {
		t.Errorf("without the plugin: %v", err)
	}
	check(t, os.WriteFile(filepath.Join(w.dir, "bridge"), []byte(`#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'; exit ;;
STATUS) exit ;;
esac
echo $CNI_COMMAND >> `+w.dir+`/commands
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.99.0.7/24"}]}'
`), 0o755))
	check(t, CheckFile(n.cfg.BinDirs, file))
	check(t, n.Reconcile(t.Context(), nil))
	check(t, n.Ready())
	p := w.pod(t, n, "pod")
	if fmt.Sprint(p.addrs) != "[10.99.0.7]" {
		t.Errorf("addresses are %v", p.addrs)
	}
	// While the plugin is missing, the built-in one must not run in its place, which would remove nothing and succeed.
	away := filepath.Join(w.dir, "away")
	check(t, os.Rename(filepath.Join(w.dir, "bridge"), away))
	if err := n.Teardown(t.Context(), p.id, p.path, p.cfg); err == nil || !strings.Contains(err.Error(), `plugin "bridge" is not in`) {
		t.Errorf("removed without the plugin: %v", err)
	}
	n = w.network(t, func(c *Config) { *c = n.cfg })
	check(t, n.Reconcile(t.Context(), nil))
	check(t, os.Rename(away, filepath.Join(w.dir, "bridge")))
	check(t, n.Teardown(t.Context(), p.id, p.path, p.cfg))
	w.clean(t)
	if got, err := os.ReadFile(w.dir + "/commands"); err != nil || strings.ReplaceAll(string(got), "GC\n", "") != "ADD\nDEL\n" {
		t.Errorf("the installed plugin got %q (%v)", got, err)
	}
}

// TestOwnLinkIsNoInstalledPlugin checks that a link to islet with the name of a built-in type does not count as the installed plugin: the
// error names the field. The link may also lead to another version of islet than the running one.
func TestOwnLinkIsNoInstalledPlugin(t *testing.T) {
	w := newWorld(t)
	self, err := os.Executable()
	check(t, err)
	updated := filepath.Join(w.dir, "islet")
	check(t, os.WriteFile(updated, []byte("#!/bin/sh\n"), 0o755))
	for _, target := range []string{self, updated} {
		bin := t.TempDir()
		check(t, os.Symlink(target, filepath.Join(bin, "bridge")))
		n := w.network(t, w.conf(t, "1.conf", `{"cniVersion": "1.0.0", "name": "x", "type": "bridge", "vlan": 7}`),
			func(c *Config) { c.BinDirs = []string{bin} })
		_, path := netnstest.New(t)
		_, setup := n.Setup(t.Context(), "pod", path, nil)
		for _, err := range []error{setup, n.Ready(), CheckFile(n.cfg.BinDirs, filepath.Join(n.cfg.ConfDir, "1.conf"))} {
			if err == nil || !strings.Contains(err.Error(), "vlan") {
				t.Errorf("link to %s: %v", target, err)
			}
		}
	}
}
