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

// These are the packages of Debian that the tests need. debootstrap does not resolve python3-cffi-backend, which is a virtual package.
const (
	programs = "podman crun netavark aardvark-dns catatonit containernetworking-plugins iptables ca-certificates ansible-core ansible-lint yamllint " +
		"python3-apt python3-cffi-backend curl"
	cloudInit = "cloud-init ca-certificates curl openssl python3-cffi-backend"
)

// archive is the name of the archive of make dist in a release, and version is its version.
var (
	archive = filepath.Base(os.Getenv("ISLET_DIST"))
	version = strings.TrimSuffix(strings.TrimPrefix(archive, "islet-"), "-linux-amd64.tar.gz")
)

// shown is the version in the files of packaging that a user copies.
const shown = "0.2.0"

// boot returns a system with packages of Debian, in whose /payload are the archive of islet, the folder packaging and the given files. A
// cloud-init does nothing until its test removes the file cloud-init.disabled. It never asks a cloud for its data.
func boot(t *testing.T, packages string, init []string, payload map[string]string) *system.System {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: make test-fleet")
	}
	files := map[string]string{archive: dist, "packaging": filepath.Join(machine.Root(t), "packaging")}
	for name, path := range payload {
		files[name] = path
	}
	folder := "system-fleet"
	if packages == cloudInit {
		folder = "system-cloud-init"
	}
	s := system.NewOf(t, system.FileSystem(t, folder, append([]string{"bookworm"}, strings.Fields(packages)...)...), init, files)
	if packages == cloudInit {
		for name, text := range map[string]string{"cloud-init.disabled": "", "cloud.cfg.d/99-test.cfg": "datasource_list: [NoCloud, None]\nlocale: false\n"} {
			file := filepath.Join(s.Dir, "layer/etc/cloud", name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
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
