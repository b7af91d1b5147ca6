package join

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/internal/k3s"
)

// TestCheckHost checks that a machine with swap joins unless the file of the node refuses swap, and that the command fails before it
// changes a file if the agent could not start on the machine, with and without a service.
func TestCheckHost(t *testing.T) {
	swap := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {}, "proc/swaps": {Data: []byte("Filename\n/dev/zram0 partition\n")}}
	v1, dns := fstest.MapFS{}, []netip.Addr{netip.MustParseAddr("10.43.0.10")}
	for name, c := range map[string]struct {
		text string // of kubelet.yaml
		args []string
		host fs.FS
		want string // in the error
	}{
		"swap":                    {host: swap},
		"swap that the node has":  {text: "failSwapOn: false\n", host: swap},
		"swap that is refused":    {text: "failSwapOn: true\n", host: swap, want: "/dev/zram0"},
		"refused by a flag":       {args: []string{"--fail-swap-on"}, host: swap, want: "/dev/zram0"},
		"cgroup v1":               {host: v1},
		"cgroup v1, refused":      {text: "failCgroupV1: true\n", host: v1, want: "failCgroupV1"},
		"swap of pods, cgroup v1": {text: "memorySwap: {swapBehavior: LimitedSwap}\n", host: v1, want: "LimitedSwap"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "kubelet.yaml")
		text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + c.text
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, isInstalled := range []bool{true, false} {
			o := &options{name: "pi", configDir: dir, host: c.host}
			if isInstalled {
				own := append([]string{"--hostname-override=pi", "--config=" + file, "--edge-config="}, c.args...)
				o.service.flags = func() ([]string, bool) { return own, true }
			} else if c.args != nil {
				continue
			}
			_, err := o.configFiles(k3s.Directory(dir), &k3s.Settings{ClusterDomain: "cluster.local", ClusterDNS: dns})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, a service %v: %v", name, isInstalled, err)
			}
		}
	}
}

// TestNoService checks that the flags of a service that is not installed yet count too, and that there is a configuration to compare if
// only the flags file exists. The flags file does not count for an agent that is started by other means.
func TestNoService(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flags")
	none := func() ([]string, bool) { return nil, false }
	planned := func() ([]string, bool) { return []string{"--config=/elsewhere"}, true }
	for _, c := range []struct {
		flags  func() ([]string, bool)
		listed bool
		want   int // number of the service's own flags; -1 if there is nothing to compare
	}{{nil, false, -1}, {none, false, -1}, {planned, false, 1}, {none, true, 0}, {nil, true, 0}, {planned, true, 1}} {
		os.Remove(file)
		if c.listed {
			if err := os.WriteFile(file, []byte("--v=2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := (&service{flags: none, listed: file}).own(); ok {
			t.Errorf("%+v: the flags of no service", c)
		}
		flags, ok := (&service{c.flags, file, true}).own()
		if len(flags) != max(c.want, 0) || ok != (c.want >= 0) {
			t.Errorf("%+v: %q, %v", c, flags, ok)
		}
	}
}

// TestPlaces checks that advice about a flag names the file that contains the flag.
func TestPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flags")
	const args = serviceArgs
	for _, c := range []struct {
		own, listed string
		set, remove string
	}{
		{"", "", args, args},
		{"--node-ip=192.0.2.1", "", args, args},
		{"", "# mine\n--node-ip=192.0.2.1\n", file, file},
		{"--node_ip", "--node-ip=192.0.2.1\n", args, args + " and " + file},
		{"--node-ips", "--node-ips=1\n", args, args},
		{"", "wrong\n", args, args},
	} {
		if err := os.WriteFile(file, []byte(c.listed), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &service{func() ([]string, bool) { return []string{"--v=2", c.own}, true }, file, true}
		if got, want := s.set("--node-ip", "192.0.2.7"), "set --node-ip=192.0.2.7 in "+c.set; got != want {
			t.Errorf("%+v: %s", c, got)
		}
		if got, want := s.remove("--node-ip"), "remove --node-ip from "+c.remove; got != want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := (&service{listed: "/nowhere"}).set("--node-ip", "x"); got != "set --node-ip=x in "+args {
		t.Error(got)
	}
}
