package ctrd_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
)

// freezeTaskShim stops the containerd shim of a sandbox, and returns a function that continues it.
func (n *node) freezeTaskShim(t *testing.T, sandbox string) (thaw func()) {
	t.Helper()
	pids := n.taskShims(t, sandbox)
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all its threads have stopped", func() bool { return stopped(t, pid) })
	}
	return func() {
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGCONT) // the shim may have ended
		}
	}
}

// TestTaskExecSilent checks commands in a container whose containerd shim does not respond. Each command fails with its timeout. Commands
// run again when the shim responds again, and those of other pods always run.
func TestTaskExecSilent(t *testing.T) {
	n := newTaskNode(t)
	ctrd.SetExecGrace(n.Runtime, 5*time.Second)
	pod, id := n.runPod(t, 1, "wait")
	_, other := n.runPod(t, 2, "wait")
	run := func(id string, timeout int64) error {
		out, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "print", "ran"}, Timeout: timeout})
		if err == nil && string(out.Stdout) != "ran\n" {
			t.Errorf("the output is %q", out.Stdout)
		}
		return err
	}
	thaw := n.freezeTaskShim(t, pod)
	defer thaw()
	for range 3 {
		if err := run(id, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a command while the shim does not respond: %v", err)
		}
	}
	if err := run(other, 0); err != nil {
		t.Errorf("a command in another pod: %v", err)
	}
	thaw()
	if err := run(id, 0); err != nil {
		t.Errorf("a command when the shim responds again: %v", err)
	}
}

// TestTaskShimHangs checks the removal of a pod whose containerd shim does not respond any more. The shim is killed, and then the pod is
// removed.
func TestTaskShimHangs(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits for two minutes; the timeout has a unit test: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	pod, id := n.runPod(t, 1, "wait")
	pid := n.pid(t, id)
	defer n.freezeTaskShim(t, pod)()
	if _, err := n.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Error(err)
	}
	eventually(t, "its process is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	if pids := n.taskShims(t, pod); len(pids) > 0 {
		t.Errorf("its shim is left: %v", pids)
	}
}
