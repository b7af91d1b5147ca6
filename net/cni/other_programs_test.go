package cni

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/net/netns/netnstest"
)

// podmans is the content of Debian's 87-podman-bridge.conflist. Its plugins are in another package, which may not be installed.
const podmans = `{"cniVersion": "0.4.0", "name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0", "isGateway": true, "ipMasq": true,
	"ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}]]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"}, {"type": "tuning"}]}`

// TestOthersConfigurations checks the network configurations of other container programs. The mode auto ignores them, and the mode cni uses
// them.
func TestOthersConfigurations(t *testing.T) {
	others := map[string]string{
		"87-podman-bridge.conflist":    podmans,
		"87-podman.conflist":           podmans,
		"web.conflist":                 strings.ReplaceAll(podmans, "cni-podman0", "cni-podman1"),
		"100-crio-bridge.conflist":     `{"cniVersion": "1.0.0", "name": "crio", "plugins": [{"type": "bridge", "bridge": "cni0"}]}`,
		"11-crio-ipv4-bridge.conflist": `{"cniVersion": "1.0.0", "name": "crio", "plugins": [{"type": "bridge", "bridge": "cni0"}]}`,
		"200-loopback.conflist":        `{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}`,
		"nerdctl-bridge.conflist":      `{"cniVersion": "1.0.0", "name": "bridge", "nerdctlID": "17f29b073143d8cd97b5bbe492bdeffec1c5fee55cc1fe2112c8b9335f8b6121", "plugins": [{"type": "nowhere"}]}`,
		"nets.conflist":                `{"cniVersion": "1.0.0", "name": "x", "nerdctlID": "1", "plugins": [{"type": "nowhere"}]}`,
	}
	for name, content := range others {
		w := newWorld(t)
		conf := w.conf(t, name, content)
		n := w.network(t, conf)
		check(t, n.Reconcile(t.Context(), nil))
		if addrs := w.pod(t, n, "pod").addrs; addrs[0].String() != "10.42.0.2" || n.Config() != BuiltIn || n.Ready() != nil {
			t.Errorf("beside %s: the pod has %v, the network is %s, ready: %v", name, addrs, n.Config(), n.Ready())
		}
		n = w.network(t, conf, func(c *Config) { c.Mode = CNIOnly })
		if list, err := n.plugins.confs.currentList(); list == nil && err == nil {
			t.Errorf("mode cni ignores %s, too", name)
		}
		// The configuration of an add-on is used, wherever its name is in the order of the files.
		w.conf(t, "zz-addon.conflist", w.chained("1.0.0"))
		n = w.network(t, conf)
		if list, err := n.plugins.confs.currentList(); err != nil || list == nil ||
			filepath.Base(n.plugins.confs.activeFile()) != "zz-addon.conflist" {
			t.Errorf("beside %s, the add-on's configuration is not used: %v, %v", name, list, err)
		}
	}
}

// TestMissingPluginAlone checks a configuration whose plugins are not installed. A node in a cluster waits for the plugins. A node without
// a cluster uses the built-in network until then, and reports this.
func TestMissingPluginAlone(t *testing.T) {
	w := newWorld(t)
	conf := w.conf(t, "1.conflist", `{"cniVersion": "1.0.0", "name": "site", "plugins": [{"type": "nowhere"}]}`)
	n := w.network(t, conf)
	_, path := netnstest.New(t)
	if _, err := n.Setup(t.Context(), "joined", path, nil); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("in a cluster: %v", err)
	}
	n = w.network(t, conf, func(c *Config) { c.Standalone = true })
	check(t, n.Reconcile(t.Context(), nil))
	addrs := w.pod(t, n, "pod").addrs
	if addrs[0].String() != "10.42.0.2" || n.Ready() != nil || n.CheckPodNetwork() != nil || n.Config() != BuiltIn {
		t.Errorf("alone: %v, %v, %s", addrs, n.Ready(), n.Config())
	}
	if err := n.Problem(); err == nil || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "built-in network") {
		t.Errorf("the warning is %v", err)
	}
	// The node uses the configuration when its plugins are installed.
	w.conf(t, "1.conflist", w.chained("1.0.0"))
	if err := n.Ready(); err != nil || !n.IsStale("pod") || n.Problem() != nil {
		t.Errorf("with the plugins: %v, stale %t, %v", err, n.IsStale("pod"), n.Problem())
	}
}

// TestBrokenFileAlone checks a configuration file that cannot be used. A node without a cluster skips and reports it. Pods then get the
// network of the next file, or the built-in network. A node in a cluster waits until the file is valid, as containerd does.
func TestBrokenFileAlone(t *testing.T) {
	alone := func(c *Config) { c.Standalone = true }
	for name, put := range map[string]func(file string) error{
		"half":      func(file string) error { return os.WriteFile(file, []byte(`{"name": "half`), 0o600) },
		"empty":     func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"too large": func(file string) error { return os.WriteFile(file, make([]byte, maxConf+1), 0o600) },
		"a field that islet's plugin does not know": func(file string) error {
			return os.WriteFile(file, []byte(`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge", "vlan": 7}]}`), 0o600)
		},
		"no plugin": func(file string) error {
			return os.WriteFile(file, []byte(`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "nowhere"}]}`), 0o600)
		},
		"a link to no file":   func(file string) error { return os.Symlink("nowhere", file) },
		"a link to directory": func(file string) error { return os.Symlink("/", file) },
		"a pipe":              func(file string) error { return syscall.Mkfifo(file, 0o600) },
		"a disk that fails":   func(file string) error { return os.Symlink("/proc/self/mem", file) }, // EIO
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			conf := w.conf(t, "50-good.conflist", w.chained("1.0.0"))
			good := filepath.Join(w.dir, "net.d", "50-good.conflist")
			broken := filepath.Join(w.dir, "net.d", "10-broken.conflist")
			check(t, put(broken))
			if n := w.network(t, conf); n.Ready() == nil {
				t.Error("in a cluster, the broken file is skipped")
			}
			n := w.network(t, conf, alone)
			if err := n.Ready(); err != nil || n.Config() != good {
				t.Errorf("the network is %s: %v", n.Config(), err)
			}
			if err := n.Problem(); err == nil || !strings.Contains(err.Error(), "50-good.conflist") {
				t.Errorf("the warning is %v", err)
			}
			check(t, os.Remove(good))
			check(t, n.Ready())
			if err := n.Problem(); err == nil || !strings.Contains(err.Error(), "stays in use") {
				t.Errorf("after the good file was removed the warning is %v", err)
			}
			n = w.network(t, conf, alone)
			if err := n.Ready(); err != nil || n.Config() != BuiltIn {
				t.Errorf("without a good file the network is %s: %v", n.Config(), err)
			}
			if err := n.Problem(); err == nil || !strings.Contains(err.Error(), "built-in network") {
				t.Errorf("the warning is %v", err)
			}
			check(t, os.Remove(broken))
			check(t, n.Ready())
			if err := n.Problem(); err != nil {
				t.Errorf("without the broken file: %v", err)
			}
			// If a file becomes invalid while it is in use, the next file does not replace it.
			w.conf(t, "10-broken.conflist", w.chained("1.0.0"))
			n = w.network(t, conf, alone)
			check(t, n.Ready())
			w.conf(t, "50-good.conflist", strings.ReplaceAll(w.chained("1.0.0"), "podnet", "other"))
			check(t, os.Remove(broken))
			check(t, put(broken))
			list, err := n.plugins.confs.currentList()
			if err == nil || list == nil || list.Name != "podnet" {
				t.Errorf("after the active file became invalid: %v, %v", list, err)
			}
		})
	}
}
