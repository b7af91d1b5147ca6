package migrate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
const programs = "podman containerd runc crun netavark aardvark-dns catatonit containernetworking-plugins iptables ca-certificates"

// archive is the name of islet's archive in the steps, and in /root of a host.
const archive = "islet-9.0.0-linux-amd64.tar.gz"

// boot returns a host with a release of Debian. The archive of islet, its install.sh and the program islet are in /root.
func boot(t *testing.T, release string, payload map[string]string) *system.System {
	t.Helper()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to install: make test-migrate")
	}
	files := map[string]string{archive: dist, "podtool.tar": machine.Archive(t)}
	for name, path := range payload {
		files[name] = path
	}
	init := system.Systemd
	if release != "bookworm" { // later versions of systemd reject cgroup v1, which this machine may have
		init = append(slices.Clone(init), "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
	}
	root := system.FileSystem(t, "system-"+release, append([]string{release}, strings.Fields(programs)...)...)
	s := system.NewOf(t, root, init, files)
	s.Boot()
	s.Run("cp /payload/" + archive + " /root/ && cd /root && tar xzf " + archive + " --strip-components=1 --wildcards '*/islet' '*/install.sh'")
	return s
}

// A report is the output of islet doctor --migrate.
type report struct {
	Steps, Back []step
	Skipped     []string
}

type step struct{ Commands []string }

// reportOf returns the report about a host. The report may not lack a file of the host.
func reportOf(s *system.System, t *testing.T) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.Run("cd /root && ./islet doctor --migrate -o json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) > 0 || len(r.Steps) == 0 || len(r.Back) == 0 {
		t.Fatalf("%+v", r)
	}
	return r
}

// follow runs the commands of steps as an administrator does: one after another in the same shell of root, until one fails. It omits
// commands of kubectl, which are for another machine.
func follow(s *system.System, steps [][]string) {
	script := "cd /root; PATH=/usr/local/sbin:/usr/local/bin:$PATH; export PODMAN_IGNORE_CGROUPSV1_WARNING=1; set -ex\n"
	// The archive has another name than the one with which it was built, and than the directory in it.
	names := strings.NewReplacer("islet-VERSION-linux-ARCH.tar.gz", archive,
		"islet-VERSION-linux-ARCH", strings.TrimSuffix(filepath.Base(os.Getenv("ISLET_DIST")), ".tar.gz"))
	for _, commands := range steps {
		for _, c := range commands {
			if !strings.HasPrefix(c, "kubectl ") {
				script += names.Replace(c) + "\n"
			}
		}
	}
	s.Run(script)
}

// commandsOf returns the commands of a report's steps.
func commandsOf(list []step) (steps [][]string) {
	for _, step := range list {
		steps = append(steps, step.Commands)
	}
	return steps
}

// page returns the commands in a section of a page of docs, by block. The lines of a block are indented by 4 or 7 spaces. The function edit
// changes a block, for example to replace names.
func page(t *testing.T, name, section string, edit func(block string) []string) (steps [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(machine.Root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), "\n## "+section+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	if !ok {
		t.Fatalf("%s has no section %s", name, section)
	}
	for _, block := range regexp.MustCompile(`(?m)(^(?: {4}| {7})[^ \n].*\n)(^ {4,}.*\n)*`).FindAllString(part, -1) {
		steps = append(steps, edit(block))
	}
	if len(steps) == 0 {
		t.Fatalf("the section %s of %s has no commands", section, name)
	}
	return steps
}

// request fetches a page of a host, and returns its text.
func request(s *system.System, port int) string {
	text := s.Await(fmt.Sprintf(
		`bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf "GET / HTTP/1.0\r\n\r\n" >&3 && cat <&3' | grep -A 99 '^HTTP/1.0 200'`, port))
	return strings.TrimSpace(text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:])
}

// waitForPods waits until exactly these pods of islet are ready.
func waitForPods(s *system.System, names ...string) {
	slices.Sort(names)
	s.Await(`export PATH=/usr/local/bin:$PATH; islet pods --no-headers | awk '{ split($2, n, "/"); if ($3 == "Running" && n[1] == n[2]) print $1 }' | sort |` +
		` tr '\n' ' ' | grep -qx '` + strings.Join(names, " ") + ` ' || { islet pods; islet events | tail -20; exit 1; }`)
}

// expect checks the content of a file of a host.
func expect(t *testing.T, s *system.System, file, want string) {
	t.Helper()
	if got := s.Run("cat " + file); got != want {
		t.Errorf("%s is %q, want %q", file, got, want)
	}
}
