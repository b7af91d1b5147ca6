package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

func run(command, kind, container, conf string) (string, error) {
	result, err := Run(context.Background(), kind, &Request{Command: command, Exec: &Exec{}, Args: &skel.CmdArgs{
		ContainerID: container, IfName: "eth0", StdinData: []byte(conf),
	}})
	if err != nil || result == nil {
		return "", err
	}
	out, err := json.Marshal(result)
	return string(out), err
}

func hostLocal(dir, ipam string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "n", "type": "any", "ipam": {"type": "host-local", "dataDir": %q, %s}}`, dir, ipam)
}

func lease(t *testing.T, container, conf string) string {
	t.Helper()
	out, err := run("ADD", "host-local", container, conf)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		IPs []struct{ Address, Gateway string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address+" by "+ip.Gateway)
	}
	return strings.Join(all, ", ")
}

func TestHostLocalKeepsUpstreamsFiles(t *testing.T) {
	dir := t.TempDir()
	conf := hostLocal(dir, `"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/64", "rangeStart": "fd00::10", "gateway": "fd00::ff"}]]`)
	if got := lease(t, "one", conf); got != "10.0.0.2/29 by 10.0.0.1, fd00::10/64 by fd00::ff" {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]string{"10.0.0.2": "one\r\neth0", "fd00::10": "one\r\neth0", "last_reserved_ip.0": "10.0.0.2", "last_reserved_ip.1": "fd00::10"} {
		got, err := os.ReadFile(filepath.Join(dir, "n", name))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
	if _, err := run("ADD", "host-local", "one", conf); err == nil {
		t.Error("a second address for the same container")
	}
	if _, err := run("CHECK", "host-local", "one", conf); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := run("DEL", "host-local", "one", conf); err != nil {
			t.Error(err)
		}
	}
	if _, err := run("CHECK", "host-local", "one", conf); err == nil {
		t.Error("CHECK succeeds after DEL")
	}
	if got := lease(t, "two", conf); got != "10.0.0.3/29 by 10.0.0.1, fd00::11/64 by fd00::ff" {
		t.Errorf("the cyclic order does not continue: %s", got)
	}
}

func TestHostLocalGoesRoundAllRangesOfASet(t *testing.T) {
	conf := hostLocal(t.TempDir(), `"ranges": [[{"subnet": "10.0.0.0/30"}, {"subnet": "10.1.0.0/30", "gateway": "10.1.0.2"}]]`)
	for i, want := range []string{"10.0.0.2/30 by 10.0.0.1", "10.1.0.1/30 by 10.1.0.2"} {
		if got := lease(t, fmt.Sprint("c", i), conf); got != want {
			t.Errorf("lease %d is %s, want %s", i, got, want)
		}
	}
	if _, err := run("ADD", "host-local", "full", conf); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("full: %v", err)
	}
	if _, err := run("DEL", "host-local", "c0", conf); err != nil {
		t.Fatal(err)
	}
	if got := lease(t, "again", conf); got != "10.0.0.2/30 by 10.0.0.1" {
		t.Errorf("the free one is not found: %s", got)
	}
}

func TestHostLocalRequestedAddress(t *testing.T) {
	dir := t.TempDir()
	conf := strings.TrimSuffix(hostLocal(dir, `"subnet": "10.0.0.0/24"`), "}") + `, "runtimeConfig": {"ips": ["10.0.0.77/24"]}}`
	if got := lease(t, "one", conf); got != "10.0.0.77/24 by 10.0.0.1" {
		t.Errorf("got %s", got)
	}
	for _, address := range []string{"10.0.0.77", "10.0.0.1", "10.9.0.1", "x"} {
		other := strings.Replace(conf, "10.0.0.77/24", address, 1)
		if _, err := run("ADD", "host-local", "two", other); err == nil {
			t.Errorf("%s is given", address)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "n", "10.*")); len(files) != 1 {
		t.Errorf("leases are %v", files)
	}
}

// TestHostLocalAfterPowerCut checks that addresses whose files a power cut has emptied are assigned again, also if a pod requests another
// address. DEL does not release such an address, because it finds a lease file by its content.
func TestHostLocalAfterPowerCut(t *testing.T) {
	dir := t.TempDir()
	conf := hostLocal(dir, `"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/125"}]]`)
	for boot, cut := range []string{"", "\x00\x00\x00", ""} {
		for i := range 5 { // all addresses
			lease(t, fmt.Sprint(boot, "-", i), conf)
		}
		if _, err := run("ADD", "host-local", "full", conf); err == nil || !strings.Contains(err.Error(), "taken") {
			t.Errorf("boot %d: an address is assigned twice: %v", boot, err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "n", "*[.:]*[0-9a-f]"))
		if err != nil || len(files) < 10 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.HasPrefix(filepath.Base(file), "last") {
				continue
			}
			if err := os.WriteFile(file, []byte(cut), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := run("DEL", "host-local", fmt.Sprint(boot, "-0"), conf); err != nil {
			t.Error(err)
		}
	}
	asking := strings.TrimSuffix(conf, "}") + `, "runtimeConfig": {"ips": ["10.0.0.4"]}}`
	if got := lease(t, "asks", asking); !strings.HasPrefix(got, "10.0.0.4/29") {
		t.Errorf("got %s", got)
	}
}

func TestHostLocalGC(t *testing.T) {
	dir := t.TempDir()
	conf := strings.Replace(hostLocal(dir, `"subnet": "10.0.0.0/24"`), "1.0.0", "1.1.0", 1)
	lease(t, "keep", conf)
	lease(t, "drop", conf)
	gc := strings.TrimSuffix(conf, "}") + `, "cni.dev/valid-attachments": [{"containerID": "keep", "ifname": "eth0"}]}`
	if _, err := run("GC", "host-local", "", gc); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "n", "10.*")); len(files) != 1 || filepath.Base(files[0]) != "10.0.0.2" {
		t.Errorf("leases are %v", files)
	}
}

func TestHostLocalRefuses(t *testing.T) {
	for _, ipam := range []string{
		`"subnet": "10.0.0.1/24"`, `"subnet": "10.0.0.0/31"`, `"subnet": "10.0.0.0/24", "rangeStart": "10.1.0.0"`, `"ranges": []`, `"ranges": [[]]`,
		`"subnet": "10.0.0.0/24", "ranges": [[{"subnet": "10.0.0.0/25"}]]`, `"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]`,
		`"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.3"`, `"subnet": "10.0.0.0/24", "resolvConf": "/nowhere"`, `"subnet": "10.0.0.0/24", "typo": 1`,
	} {
		if _, err := run("ADD", "host-local", "c", hostLocal(t.TempDir(), ipam)); err == nil {
			t.Errorf("%s is accepted", ipam)
		}
	}
	conf := strings.Replace(hostLocal(t.TempDir(), `"subnet": "10.0.0.0/24"`), `"name": "n"`, `"name": "../n"`, 1)
	if _, err := run("ADD", "host-local", "c", conf); err == nil {
		t.Error("a network name that is a path is accepted")
	}
}

func TestUnsupported(t *testing.T) {
	for _, c := range []struct {
		kind, conf, field string
	}{
		{"bridge", `"vlan": 5`, "vlan"}, {"bridge", `"macspoofchk": true`, "macspoofchk"}, {"bridge", `"vlan": 0, "vlanTrunk": []`, ""},
		{"portmap", `"externalSetMarkChain": "X"`, "externalSetMarkChain"}, {"portmap", `"backend": "iptables"`, ""}, {"loopback", `"cni.dev/x": 1`, ""}, {"other", `"what": 1`, ""},
	} {
		err := Validate(c.kind, []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "x", `+c.conf+`}`))
		var coded *types.Error
		if c.field == "" && err != nil || c.field != "" &&
			(!errors.As(err, &coded) || coded.Code != types.ErrUnsupportedField || !strings.Contains(coded.Msg, c.field)) {
			t.Errorf("%s with %s: %v", c.kind, c.conf, err)
		}
	}
}

func TestRunRefusesOtherVersions(t *testing.T) {
	for _, version := range []string{"0.2.0", "2.0.0", "x"} {
		_, err := run("ADD", "loopback", "c", `{"cniVersion": "`+version+`", "name": "n", "type": "loopback"}`)
		var coded *types.Error
		if !errors.As(err, &coded) || coded.Code != types.ErrIncompatibleCNIVersion {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

func TestRunTurnsPanicIntoError(t *testing.T) {
	// The request lacks an IPAM executor, which is a bug of this package and not of the caller.
	_, err := Run(context.Background(), "bridge", &Request{Command: "ADD", Args: &skel.CmdArgs{StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "x"}}`)}})
	if err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("error is %v", err)
	}
}

func TestExecutable(t *testing.T) {
	ns, _ := netnstest.New(t)
	dir := t.TempDir()
	script := func(name, body string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("good", "cat; ls -l /proc/self/ns/net >&2")
	script("coded", `echo '{"cniVersion": "1.0.0", "code": 11, "msg": "later"}'; exit 1`)
	script("loud", "echo broken >&2; exit 3")
	script("endless", "exec head -c 3000000 /dev/zero")
	script("slow", "exec sleep 60")
	e := &Exec{Host: ns}
	for name, want := range map[string]string{"good": "", "coded": "later", "loud": "broken", "endless": "more than"} {
		path, err := e.FindInPath(name, []string{"/nowhere", dir})
		if err != nil {
			t.Fatal(err)
		}
		out, err := e.ExecPlugin(t.Context(), path, []byte("{}"), os.Environ())
		if want == "" && (err != nil || string(out) != "{}") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.ExecPlugin(ctx, filepath.Join(dir, "slow"), nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("slow: %v", err)
	}
	for _, bad := range []string{"", "..", "../good", "/bin/sh", "missing"} {
		if path, err := e.FindInPath(bad, []string{dir}); err == nil {
			t.Errorf("%q is found as %s", bad, path)
		}
	}
}

// TestOutputBombs checks that the output of a plugin is rejected before it is decoded if it is too large. The test contains plugins that
// succeed and plugins that fail.
func TestOutputBombs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty":  `{"cniVersion":"1.0.0","ips":[` + strings.Repeat("{},", 250_000) + `{}]}`,
		"nested": strings.Repeat(`{"a":`, 150_000) + "0" + strings.Repeat("}", 150_000),
		"lists":  `{"a":[` + strings.Repeat("[],", 250_000) + `[]]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{"exit 0", "exit 1"} {
			script := filepath.Join(dir, name)
			if err := os.WriteFile(script, []byte("#!/bin/sh\ncat "+script+".json; "+end+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := invoke.ExecPluginWithResult(t.Context(), script, []byte(`{"cniVersion":"1.0.0"}`), &invoke.Args{}, &Exec{})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 16<<20 {
				t.Errorf("%s, %s: %.100v, %d MiB", name, end, err, took>>20)
			}
		}
	}
}

// FuzzConfiguration decodes all parts of an arbitrary configuration that the plugin types read.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(hostLocal("/d", `"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]`)),
		"IP=10.0.0.3")
	f.Add([]byte(`{"cniVersion": "1.0.0", "name": "n", "runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 70000}], "mac": "x", "ips": ["::"]},
		"prevResult": {"cniVersion": "1.0.0", "ips": [{"interface": 5, "address": "10.0.0.2/24"}]}}`), "")
	f.Fuzz(func(t *testing.T, conf []byte, args string) {
		c, err := decodeCall("any", &Request{Args: &skel.CmdArgs{StdinData: conf, Args: args, ContainerID: "c", IfName: "eth0"}})
		if err != nil {
			return
		}
		_, _ = c.parseBridgeConf()
		if p, err := c.parsePool(); err == nil {
			for _, set := range p.sets {
				at, addr := set.nextAfter(0, netip.Addr{})
				for range 3 {
					if set.rangeOf(addr) == nil {
						t.Fatalf("%s is in no range of %v", addr, set)
					}
					at, addr = set.nextAfter(at, addr)
				}
			}
		}
		if previous, err := c.previousResult(); err == nil && previous != nil {
			_, _, _ = c.hostPorts(previous)
		}
	})
}
