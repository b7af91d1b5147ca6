package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(all []Interface) (out []string) {
	for _, i := range all {
		out = append(out, i.Name)
	}
	return out
}

// TestOutward checks that bridges and the veth interfaces of pods do not count as external interfaces.
func TestOutward(t *testing.T) {
	sys := t.TempDir()
	for _, dir := range []string{"eth0/device", "islet0/bridge", "veth1", "wlan0"} {
		if err := os.MkdirAll(filepath.Join(sys, "class/net", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../islet0", filepath.Join(sys, "class/net/veth1/master")); err != nil {
		t.Fatal(err)
	}
	of := func(all ...string) string {
		var in []Interface
		for _, n := range all {
			in = append(in, Interface{Name: n})
		}
		return strings.Join(names(ExternalInterfaces(sys, in)), " ")
	}
	if got := of("eth0", "islet0", "veth1", "wlan0"); got != "eth0" {
		t.Error(got)
	}
	if got := of("islet0", "veth1", "wlan0"); got != "wlan0" {
		t.Error(got)
	}
}

// TestNetwork checks that the machine's list excludes the interfaces of pods, even if there are very many. The list of a pod must contain
// all its interfaces, up to a limit.
func TestNetwork(t *testing.T) {
	proc := t.TempDir()
	write := func(pid string, links ...string) {
		t.Helper()
		text := "Inter-|   Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
		for _, name := range links {
			text += fmt.Sprintf("%6s: 1234567890123 1234567890 0 0 0 0 0 0 1234567890123 1234567890 0 0 0 0 0 0\n", name)
		}
		if err := os.MkdirAll(filepath.Join(proc, pid, "net"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "net/dev"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"eth0", "islet0", "isl0", "lowpan0", "island123456789", "wwan0"}
	host := want[: len(want)-1 : len(want)-1]
	for i := range 500 {
		host = append(host, fmt.Sprintf("isl%012x", i), fmt.Sprintf("veth%x", i))
	}
	write("self", append(host, "docker0", "wwan0")...)
	many := []string{"veth7", "docker1"}
	for i := range 2 * maxInterfaces {
		many = append(many, fmt.Sprint("eth", i))
	}
	write("7", many...)
	r := Reader{Root: proc}
	if got := names(r.Network(0)); !slices.Equal(got, want) {
		t.Errorf("of the machine %q, want %q", got, want)
	}
	if got := names(r.Network(7)); !slices.Equal(got, many[:maxInterfaces]) {
		t.Errorf("of a pod %q", got)
	}
}
