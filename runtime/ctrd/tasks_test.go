package ctrd_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/ctrd"
)

// runcShim builds containerd's own shim once and stores it in the cache of the repository. The shim is built in its own module, because it
// has dependencies that islet does not have.
var runcShim = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("ISLET_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, "containerd-shim-runc-v2"), nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "github.com/containerd/containerd/v2").Output()
	if err != nil {
		return "", err
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	cache, err := filepath.Abs("../../.cache/containerd-shim-" + version)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "containerd-shim-runc-v2")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", path, "./cmd/containerd-shim-runc-v2")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &os.PathError{Op: "go build", Path: string(out), Err: err}
	}
	return path, nil
})

// taskHandler is the name of the handler that uses containerd-shim-runc-v2.
const taskHandler = "task"

// newTaskNode returns a node whose pods are run by taskHandler.
func newTaskNode(t *testing.T) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path, err := runcShim()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, 2)
	n.stop(t)
	n.handlers, n.handler = map[string]ctrd.Handler{taskHandler: {Shim: path}}, taskHandler
	n.start(t)
	return n
}

// taskShims returns the PIDs of the containerd shims of a sandbox. If sandbox is "", it returns the PIDs of all containerd shims.
func (n *node) taskShims(t testing.TB, sandbox string) (pids []int) {
	t.Helper()
	for pid, s := range commandLines(t) {
		if strings.Contains(s, "containerd-shim") && strings.Contains(s, n.run+"/t/") && strings.Contains(s, "\x00-id\x00"+sandbox) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (n *node) killTaskShim(t testing.TB, sandbox string) {
	t.Helper()
	pids := n.taskShims(t, sandbox)
	if len(pids) != 1 {
		t.Fatalf("sandbox %s has the shims %v", sandbox, pids)
	}
	if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestTaskContract checks that pods with a containerd shim pass the contract tests of the CRI.
func TestTaskContract(t *testing.T) {
	n := newTaskNode(t)
	crisuite.Run(t, crisuite.Subject{Runtime: n, Kernel: true, Handler: n.handler, CgroupParent: n.cgroup,
		OnlyTests: short("SandboxLife", "ContainerLife", "Events", "ExitCodes", "Stop", "StartError", "Logs", "LogRotation", "Exec",
			"ExecTimeout", "Terminal", "Attach", "Forward", "Update", "Stats")})
}

// TestTaskRestart checks that containers of a containerd shim survive a restart of the agent, and that their logs have no gap. The next
// agent reports the exit codes of containers that have ended in the meantime.
func TestTaskRestart(t *testing.T) {
	n := newTaskNode(t)
	ctx := t.Context()
	runningPod, runningID := n.runPod(t, 1, "wait", "print", "last", "exit", "41")
	_, endedID := n.runPod(t, 2, "wait", "print", "last", "exit", "42")
	logged := func(id, text string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(n.status(t, id).LogPath)
			return strings.Contains(string(b), text)
		}
	}
	eventually(t, "both wait for signals", func() bool { return logged(runningID, "waiting")() && logged(endedID, "waiting")() })
	before, pid, path := n.status(t, runningID), n.pid(t, runningID), n.status(t, endedID).LogPath
	end := n.pid(t, endedID)
	n.stop(t)
	if err := unix.Kill(end, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the output is logged while no agent is running", func() bool {
		b, _ := os.ReadFile(path)
		return strings.Contains(string(b), "last")
	})
	handlers := n.handlers
	n.handlers = nil // the handler is removed from the configuration while its pods run
	n.start(t)
	if st := n.status(t, runningID); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, runningID) != pid ||
		st.StartedAt != before.StartedAt {
		t.Errorf("the running container is %v", st)
	}
	if got := n.sandboxState(t, runningPod); got != api.PodSandboxState_SANDBOX_READY {
		t.Errorf("its sandbox is %v", got)
	}
	eventually(t, "the exit is recorded", func() bool { return n.status(t, endedID).State == api.ContainerState_CONTAINER_EXITED })
	if st := n.status(t, endedID); st.ExitCode != 42 || st.Reason != "Error" {
		t.Errorf("the ended container is %v", st)
	}
	if r, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"/prog", "print", "hello", "exit", "3"}}); err != nil || r.ExitCode != 3 || string(r.Stdout) != "hello\n" {
		t.Error(r, err)
	}
	if _, err := n.ListContainerStats(ctx, &api.ListContainerStatsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := n.StopContainer(ctx, &api.StopContainerRequest{ContainerId: runningID, Timeout: 60}); err != nil {
		t.Error(err)
	}
	if st := n.status(t, runningID); st.ExitCode != 41 || !logged(runningID, "last")() {
		t.Errorf("the stopped container is %v", st)
	}
	n.handlers = handlers
}

// TestTaskShimSilent checks several containerd shims that do not respond. The figures of other containers are still reported. All silent
// shims together delay a list by a single timeout.
func TestTaskShimSilent(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("as TestShimSilent, by a containerd shim: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	_, bystander := n.runPod(t, 0, "wait")
	for i := range 4 {
		pod, _ := n.runPod(t, i+1, "wait")
		for _, pid := range n.taskShims(t, pod) {
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer unix.Kill(pid, unix.SIGCONT)
			eventually(t, "all its threads have stopped", func() bool { return stopped(t, pid) })
		}
	}
	begun := time.Now()
	list, err := n.ListContainerStats(t.Context(), &api.ListContainerStatsRequest{})
	if err != nil || len(list.Stats) != 1 || list.Stats[0].Attributes.Id != bystander {
		t.Errorf("%v %v", list, err)
	}
	if took := time.Since(begun); took > 6*time.Second { // the timeout is two seconds
		t.Errorf("it took %v", took)
	}
}

// stopped reports whether all threads of a process are stopped. A thread may stop some time after the signal.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	return !slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file) // a thread that has ended does not count
		_, state, ok := bytes.Cut(text, []byte(") "))
		return ok && state[0] != 'T'
	})
}

// TestTaskShimDies checks a containerd shim that dies while an agent is running, or while no agent is running. The containers of the shim
// are ended and reported. The pod can run again.
func TestTaskShimDies(t *testing.T) {
	n := newTaskNode(t)
	ctx := t.Context()
	for _, agentStopped := range []bool{false, true} {
		pod, id := n.runPod(t, 1, "wait")
		other, bystander := n.runPod(t, 2, "wait")
		pid := n.pid(t, id)
		if agentStopped {
			n.stop(t)
		}
		n.killTaskShim(t, pod)
		if agentStopped {
			eventually(t, "the shim is gone", func() bool { return len(n.taskShims(t, pod)) == 0 })
			n.start(t)
		}
		eventually(t, "the container is ended", func() bool { return n.status(t, id).State == api.ContainerState_CONTAINER_EXITED })
		if st := n.status(t, id); st.Reason != "ShimLost" || st.ExitCode != 137 {
			t.Errorf("agent away %t: it ended as %v", agentStopped, st)
		}
		eventually(t, "its process is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		eventually(t, "its sandbox is not ready", func() bool { return n.sandboxState(t, pod) == api.PodSandboxState_SANDBOX_NOTREADY })
		if st := n.status(t, bystander); st.State != api.ContainerState_CONTAINER_RUNNING ||
			n.sandboxState(t, other) != api.PodSandboxState_SANDBOX_READY {
			t.Errorf("agent away %t: the other pod is %v", agentStopped, st)
		}
		for _, p := range []string{pod, other} {
			if _, err := n.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: p}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTaskStreamsLost checks a pod with a containerd shim. A shim of islet serves the streams of its containers. If this shim dies, the pod
// is ended, because its output would be lost.
func TestTaskStreamsLost(t *testing.T) {
	n := newTaskNode(t)
	pod, id := n.runPod(t, 1, "wait")
	pid := n.pid(t, id)
	if err := unix.Kill(n.shimProcess(t, "t1"), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container is ended", func() bool { return n.status(t, id).State == api.ContainerState_CONTAINER_EXITED })
	eventually(t, "its process is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	eventually(t, "its sandbox is not ready", func() bool { return n.sandboxState(t, pod) == api.PodSandboxState_SANDBOX_NOTREADY })
}

// TestTaskReboot checks that no resource of a containerd shim is left after a reboot. The pod is recreated.
func TestTaskReboot(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("as TestReboot, by a containerd shim: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	pod, id := n.runPod(t, 1, "wait")
	n.stop(t)
	n.reboot(t)
	n.start(t)
	if got := n.sandboxState(t, pod); got != api.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("its sandbox is %v", got)
	}
	if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_EXITED || st.ExitCode != 255 {
		t.Errorf("it is %v", st)
	}
	if _, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: n.podConfig(1), RuntimeHandler: n.handler}); err != nil {
		t.Error(err)
	}
}

// TestTaskKilledAgain is TestKilledAgain with containerd shims.
func TestTaskKilledAgain(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("as TestKilledAgain, by a containerd shim: ISLET_TEST_LONG=1")
	}
	testKilledAgain(t, newTaskNode(t), 4)
}

// TestTaskShimRefused checks a handler whose program is not a containerd shim. The sandbox fails, and no resource is left.
func TestTaskShimRefused(t *testing.T) {
	n := newTaskNode(t)
	n.stop(t)
	dir := t.TempDir()
	for name, script := range map[string]string{
		"silent": "exit 0", "fails": "echo this is why >&2; exit 1", "grpc": `echo '{"version":3,"address":"unix:///x","protocol":"grpc"}'`,
		"elsewhere": `echo '{"version":2,"address":"vsock://3:1024","protocol":"ttrpc"}'`, "nobody": "echo unix:///no/such/socket",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\ncat >/dev/null\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		n.handlers[name] = ctrd.Handler{Shim: path}
	}
	n.start(t)
	for name, want := range map[string]string{"silent": "output is invalid", "fails": "this is why", "grpc": "supports ttrpc", "elsewhere": "not a unix socket", "nobody": "connect"} {
		_, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: n.podConfig(1), RuntimeHandler: name})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
