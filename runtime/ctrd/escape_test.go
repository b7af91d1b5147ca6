package ctrd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEscapeShim checks what a pod could reach through its shim, a process with the agent's privileges. The shim is in no namespace and no
// cgroup of a pod. It inherits no secret from the environment of the agent. Its only file descriptors are its socket, its log and its ends
// of the containers' output.
func TestEscapeShim(t *testing.T) {
	t.Setenv("ISLET_TEST_SECRET", "secret")
	n := newNode(t, 4)
	_, id := n.runPod(t, 1, "wait")
	container := n.pid(t, id)
	shim := n.shimProcess(t, "1")
	if shim == 0 {
		t.Fatal("no shim runs")
	}
	self := process(os.Getpid())
	for _, field := range []string{"Uid", "Gid", "CapEff", "CapBnd", "Seccomp", "NoNewPrivs"} {
		if expected, its := self.status(t)[field], process(shim).status(t)[field]; expected != its {
			t.Errorf("the shim's %s is %s, the agent's is %s", field, its, expected)
		}
	}
	if score := process(shim).read(t, "oom_score_adj"); score != "-999\n" && score != self.read(t, "oom_score_adj") {
		t.Errorf("its oom_score_adj is %s", score)
	}
	if place := process(shim).read(t, "cgroup"); strings.Contains(place, n.cgroup+"/") {
		t.Errorf("it is in a cgroup of a pod:\n%s", place)
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		if its := process(shim).link(t, "ns/"+ns); its == process(container).link(t, "ns/"+ns) || ns != "mnt" && its != self.link(t, "ns/"+ns) {
			t.Errorf("its %s namespace is %s", ns, its)
		}
	}
	if env := process(shim).read(t, "environ"); strings.Contains(env, "secret") {
		t.Errorf("its environment is %q", env)
	}
	if root := process(shim).link(t, "root"); root != "/" {
		t.Errorf("its root is %s", root)
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", shim))
	if err != nil || len(fds) < 3 {
		t.Fatalf("it has %d descriptors: %v", len(fds), err)
	}
	log := n.status(t, id).LogPath
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		// The shim needs a descriptor of the host's root to access the mounts of the host. It is close-on-exec.
		flags := process(shim).read(t, "fdinfo/"+filepath.Base(fd))
		if target == "/" && strings.Contains(flags, "flags:\t02") {
			continue
		}
		// The shim also has a close-on-exec descriptor of crun's file, which is the root of its own mount.
		if st, err := os.Stat(fd); err == nil && st.Mode().IsRegular() && target == "/" && strings.Contains(flags, "flags:\t012") {
			continue
		}
		expected := slices.ContainsFunc([]string{"pipe:", "socket:", "anon_inode:", "/dev/null", filepath.Join(n.run, "s") + "/", log, "/sys/fs/cgroup/"}, func(p string) bool { return strings.HasPrefix(target, p) })
		if err == nil && !expected {
			t.Errorf("it has descriptor %s open: %s", filepath.Base(fd), target)
		}
	}
}

// A process is the PID of a process on this machine.
type process int

func (p process) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (p process) link(t *testing.T, name string) string {
	t.Helper()
	l, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", p, name))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p process) status(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(p.read(t, "status")) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out
}
