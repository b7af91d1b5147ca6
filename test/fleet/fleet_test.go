package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

// programs are the packages of Debian that the tests need.
const programs = "podman crun netavark aardvark-dns catatonit containernetworking-plugins iptables ca-certificates ansible-core ansible-lint yamllint " +
	"cloud-init python3-apt python3-cffi-backend curl" // debootstrap does not resolve python3-cffi-backend, a virtual package

// version is the version of the archive of make dist.
const version = "0.1.0"

// archive is the archive's name in a release.
const archive = "islet-" + version + "-linux-amd64.tar.gz"

// boot returns a system in whose /payload are the archive of islet, the folder packaging and the given files.
func boot(t *testing.T, init []string, payload map[string]string) *system.System {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: make test-fleet")
	}
	files := map[string]string{archive: dist, "packaging": filepath.Join(machine.Root(t), "packaging")}
	for name, path := range payload {
		files[name] = path
	}
	s := system.NewOf(t, system.FileSystem(t, "system-fleet", append([]string{"bookworm"}, strings.Fields(programs)...)...), init, files)
	disabled := filepath.Join(s.Dir, "layer/etc/cloud/cloud-init.disabled")
	if err := os.MkdirAll(filepath.Dir(disabled), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disabled, nil, 0o644); err != nil { // until the test of cloud-init removes it
		t.Fatal(err)
	}
	s.Boot()
	return s
}

// says runs a command. It checks the exit code, and that the output contains each of the texts.
func says(t *testing.T, s *system.System, code int, command string, texts ...string) string {
	t.Helper()
	out, got := s.Try(command)
	if got != code {
		t.Fatalf("%s: exit code %d, want %d\n%s", command, got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("%s does not print %q:\n%s", command, text, out)
		}
	}
	return out
}

// waitForPods waits until exactly these pods are ready.
func waitForPods(s *system.System, names ...string) {
	slices.Sort(names)
	s.Await(`PATH=$PATH:/usr/local/bin; islet pods --no-headers | awk '{ split($2, n, "/"); if ($3 == "Running" && n[1] == n[2]) print $1 }' | sort |` +
		` tr '\n' ' ' | grep -qx '` + strings.Join(names, " ") + ` ' || { islet pods; islet events | tail -20; exit 1; }`)
}
