package ctrd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
)

// TestExecAccounts checks commands in a container that has replaced its /etc/passwd or /etc/group. OCI runtimes read both files. A command
// runs or fails, but does not block.
func TestExecAccounts(t *testing.T) {
	n := newNode(t, 16)
	_, id := n.runPod(t, 1, "wait")
	etc := fmt.Sprintf("/proc/%d/root/etc", n.pid(t, id))
	if err := os.MkdirAll(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	fifo := func(path string) error { return unix.Mkfifo(path, 0o666) }
	sparse := func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o666), os.Truncate(path, 1<<40)) }
	for _, c := range []struct {
		name string
		put  func(path string) error
		want string // part of the error; if empty, the command may either succeed or fail
	}{
		{"passwd", fifo, "/etc/passwd cannot be used"},
		{"group", fifo, "/etc/group cannot be used"},
		{"passwd", sparse, "/etc/passwd cannot be used"},
		{"group", sparse, "/etc/group cannot be used"},
		// This device is /dev/zero, which never ends.
		{"passwd", func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) }, ""},
		{"passwd", func(path string) error { return os.Symlink("/proc/self/fd/0", path) }, ""},
		{"passwd", func(path string) error { return os.Mkdir(path, 0o755) }, ""},
	} {
		path := filepath.Join(etc, c.name)
		if err := errors.Join(os.RemoveAll(path), c.put(path)); err != nil {
			t.Fatal(err)
		}
		out, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "print", "ran"}})
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || err == nil && string(out.Stdout) != "ran\n" {
			t.Errorf("%s: %v, %v; want %q", c.name, out, err, c.want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	expectProcesses(t, n, 1)
}

// TestExecSilentAccounts checks commands in a container whose /etc/passwd is a file of a volume, or a link to one, and the server of the
// volume does not answer. A command ends with its timeout. However often it is repeated, one goroutine waits for the server, and only the
// program stat accesses the volume. When the server is gone, the commands run again.
func TestExecSilentAccounts(t *testing.T) {
	t.Run("file", func(t *testing.T) { testSilentAccounts(t, "etc/passwd") })
	t.Run("link", func(t *testing.T) { testSilentAccounts(t, "data/passwd") })
}

// testSilentAccounts is TestExecSilentAccounts for a volume at a path in the container. If this path is not etc/passwd, etc/passwd is a
// link to it. The host has no such file.
func testSilentAccounts(t *testing.T, volume string) {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this kernel has no FUSE: ", err)
	}
	defer dev.Close()
	n := newNode(t, 16)
	ctr := containerConfig("main", "wait")
	for _, name := range []string{"etc", "data"} {
		dir := filepath.Join(n.dir, name)
		err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		ctr.Mounts = append(ctr.Mounts, &api.Mount{
			ContainerPath: "/" + name, HostPath: dir, Propagation: api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		})
	}
	silent := filepath.Join(n.dir, volume)
	if err := os.WriteFile(silent, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if volume != "etc/passwd" {
		if err := os.Symlink("/"+volume, filepath.Join(n.dir, "etc/passwd")); err != nil {
			t.Fatal(err)
		}
	}
	_, id := n.runContainer(t, 1, ctr)
	options := fmt.Sprintf("fd=%d,rootmode=100000,user_id=0,group_id=0", dev.Fd())
	if err := unix.Mount("nobody", silent, "fuse.nobody", 0, options); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(silent, unix.MNT_DETACH)
	run := func(seconds int64) error {
		_, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "print", "ran"}, Timeout: seconds})
		return err
	}
	for range 3 {
		if err := run(1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a command whose check gets no answer: %v", err)
		}
	}
	if got := accountChecks(); got != 1 {
		t.Errorf("%d checks wait for the server", got)
	}
	if _, err := exec.LookPath("stat"); err == nil { // otherwise a thread of the agent waits, which cannot be killed
		eventually(t, "the program stat waits for the server", func() bool { return childrenNamed("stat") == 1 })
	}
	if err := errors.Join(unix.Unmount(silent, unix.MNT_DETACH), dev.Close()); err != nil { // the server is gone
		t.Fatal(err)
	}
	eventually(t, "the check has ended", func() bool { return accountChecks() == 0 })
	if err := run(0); err != nil {
		t.Error(err)
	}
}

// childrenNamed returns the number of child processes of the test that run a program with the given name.
func childrenNamed(name string) (found int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		if strings.Contains(string(b), fmt.Sprintf(" (%s) S %d ", name, os.Getpid())) ||
			strings.Contains(string(b), fmt.Sprintf(" (%s) D %d ", name, os.Getpid())) {
			found++
		}
	}
	return found
}

// accountChecks returns the number of goroutines that check the accounts of a container.
func accountChecks() int {
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "ctrd.checkRunningAccounts(")
}

// TestExecSwapped checks a container that replaces /etc/passwd with a FIFO after the check. The caller can cancel its exec. No process is
// left in the container.
func TestExecSwapped(t *testing.T) {
	n, id := newSwappingNode(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "ignore"}})
		done <- err
	}()
	eventually(t, "the exec has started a process", func() bool { return processes(n) == 2 })
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	expectProcesses(t, n, 1)
}

// TestExecSwappedLong is TestExecSwapped with a caller that does not cancel. The command fails after execStartTimeout.
func TestExecSwappedLong(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("ISLET_TEST_LONG is not set")
	}
	n, id := newSwappingNode(t)
	began := time.Now()
	_, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "print", "ran"}})
	t.Log(time.Since(began), err)
	if err != nil && !strings.Contains(err.Error(), "did not start within") {
		t.Errorf("got %v", err)
	}
	expectProcesses(t, n, 1)
}

// newSwappingNode returns a node with a container. When the OCI runtime is called for a command, the container's /etc/passwd is replaced by
// a FIFO.
func newSwappingNode(t *testing.T) (n *node, id string) {
	t.Helper()
	n = newNode(t, 4)
	program, _ := n.wrapper(t, "swaps")
	script, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "passwd")
	swap := fmt.Sprintf("case \" $* \" in *\" exec \"*) p=$(cat %s); rm -f $p; mkfifo $p;; esac\nexec ", at)
	if err := os.WriteFile(program, []byte(strings.Replace(string(script), "exec ", swap, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	n.handlers = map[string]ctrd.Handler{"swaps": {OCIRuntime: program}}
	n.start(t)
	cfg := n.podConfig(1)
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "swaps"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: containerConfig("main", "wait")})
	if err == nil {
		_, err = n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	etc := fmt.Sprintf("/proc/%d/root/etc", n.pid(t, c.ContainerId))
	if err := errors.Join(os.MkdirAll(etc, 0o755), os.WriteFile(at, []byte(etc+"/passwd"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return n, c.ContainerId
}

// processes returns the number of processes in the containers of a node.
func processes(n *node) int {
	seen := map[string]bool{}
	for _, dir := range cgroupDirs(n.cgroup) {
		filepath.Walk(dir, func(path string, _ os.FileInfo, _ error) error {
			if filepath.Base(path) == "cgroup.procs" {
				b, _ := os.ReadFile(path)
				for _, pid := range strings.Fields(string(b)) {
					seen[pid] = true
				}
			}
			return nil
		})
	}
	return len(seen)
}

func expectProcesses(t *testing.T, n *node, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d processes are left", want), func() bool { return processes(n) == want })
}
