package cis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// Install installs islet in a machine that has its own /etc and /usr/local. It runs install.sh with the program under test and the files
// of the folder packaging. It starts no unit.
func Install(t testing.TB, m *machine.Machine, args ...string) {
	t.Helper()
	from, to := filepath.Join(machine.Root(t), "packaging"), filepath.Join(m.Disk, "archive")
	for _, part := range []string{"systemd", "openrc", "kubeadm", "default"} {
		if err := os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(from, part))); err != nil {
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile(filepath.Join(from, "files"))
	if err != nil {
		t.Fatal(err)
	}
	kept := ""
	for line := range strings.Lines(string(table)) { // every file except the files that have to be built
		if f := strings.Fields(line); len(f) < 4 || f[1] != "doc" && f[1] != "man" && !strings.HasPrefix(f[3], "completion/") &&
			!strings.HasPrefix(f[3], "lib/") {
			kept += line
		}
	}
	script, err := os.ReadFile(filepath.Join(from, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	m.Write("archive/files", kept)
	m.Write("archive/install.sh", string(script))
	m.Write("archive/built", "1767225600\n")
	m.Run("cp", m.Binary(), to+"/islet")
	m.Run("env", append([]string{"DESTDIR=/", "sh", to + "/install.sh"}, args...)...)
}

// PidsLimit returns the process limit of a container: the lowest limit of its cgroup and of the parent cgroups below top. It returns 0 if
// there is no limit.
func PidsLimit(t testing.TB, pid int, top string) (least int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		mount := map[string]string{"pids": "/sys/fs/cgroup/pids", "": "/sys/fs/cgroup"}[f[1]]
		if mount == "" {
			continue
		}
		for dir := f[2]; strings.HasPrefix(dir, top) && dir != "/"; dir = filepath.Dir(dir) {
			var n int64
			b, err := os.ReadFile(mount + dir + "/pids.max")
			if _, serr := fmt.Sscan(string(b), &n); err == nil && serr == nil && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return least
}
