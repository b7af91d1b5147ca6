package ctrd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// createSecond creates another container in the pod of runPod.
func (n *node) createSecond(t *testing.T, pod string) (id string) {
	t.Helper()
	c, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: n.podConfig(1), Config: containerConfig("second", "wait"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.ContainerId
}

// startSecond starts a container in a goroutine.
func (n *node) startSecond(id string) <-chan error {
	result, agent := make(chan error, 1), n.Runtime
	go func() {
		_, err := agent.StartContainer(context.Background(), &api.StartContainerRequest{ContainerId: id})
		result <- err
	}()
	return result
}

// TestTaskStopDuringStart checks the stop of a container whose start does not end, because the OCI runtime of its containerd shim waits.
// The processes of the container are killed, and the start fails. The other container of the pod continues to run.
func TestTaskStopDuringStart(t *testing.T) {
	if systemd() {
		t.Skip("hangingOCI needs the path of the container's cgroup, which systemd chooses")
	}
	n := newTaskNode(t)
	hang, hanging := hangingOCI(t, n, "sleep 1000")
	pod, bystander := n.runPod(t, 1, "wait")
	pid, id := n.pid(t, bystander), n.createSecond(t, pod)
	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	result := n.startSecond(id)
	eventually(t, "the OCI runtime hangs", func() bool { b, err := os.ReadFile(hanging); return err == nil && len(b) > 0 })
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	if _, err := n.StopContainer(t.Context(), &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("the start was successful")
	}
	if st := n.status(t, id); st.State != api.ContainerState_CONTAINER_EXITED || st.Reason != "StartError" {
		t.Errorf("it is %v", st)
	}
	if n.pid(t, bystander) != pid || dead(pid) || n.sandboxState(t, pod) != api.PodSandboxState_SANDBOX_READY {
		t.Error("the other container of the pod has ended")
	}
}

// TestTaskStartHangs checks the removal of a pod whose containerd shim does not respond during the start of a container. The shim is
// killed, and then the pod is removed.
func TestTaskStartHangs(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits for two minutes; the timeout has a unit test: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	pod, _ := n.runPod(t, 1, "wait")
	id := n.createSecond(t, pod)
	defer n.freezeTaskShim(t, pod)()
	result := n.startSecond(id)
	eventually(t, "the start has begun", func() bool {
		_, err := os.Stat(filepath.Join(n.run, "b", id, "task.json"))
		return err == nil
	})
	if _, err := n.StopContainer(t.Context(), &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Error(err)
	}
	if _, err := n.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("the start was successful")
	}
	if pids := n.taskShims(t, pod); len(pids) > 0 {
		t.Errorf("its shim is left: %v", pids)
	}
}

// TestTaskAdoptSilent checks several containerd shims that do not respond at the start of an agent. The shims are killed, and their pods
// can run again. The other pods continue to run.
func TestTaskAdoptSilent(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits for half a minute; TestAdoptSilentTasks is a unit test: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	_, bystander := n.runPod(t, 0, "wait")
	pid := n.pid(t, bystander)
	var pods []string
	for i := range 3 {
		pod, _ := n.runPod(t, i+1, "wait")
		defer n.freezeTaskShim(t, pod)()
		pods = append(pods, pod)
	}
	n.stop(t)
	n.start(t)
	if n.pid(t, bystander) != pid || dead(pid) {
		t.Error("another pod has ended")
	}
	for i, pod := range pods {
		if pids := n.taskShims(t, pod); len(pids) > 0 {
			t.Errorf("a silent shim is left: %v", pids)
		}
		req := &api.RunPodSandboxRequest{Config: n.podConfig(i + 1), RuntimeHandler: n.handler}
		if _, err := n.RunPodSandbox(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
}

// TestTaskSandboxHangs checks a pod whose first container does not start, because the OCI runtime of its containerd shim waits. The start
// fails, no resource is left, and a later start is successful.
func TestTaskSandboxHangs(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" || systemd() {
		t.Skip("waits for four minutes; the timeout has a unit test; hangingOCI does not work with systemd: ISLET_TEST_LONG=1")
	}
	n := newTaskNode(t)
	hang, hanging := hangingOCI(t, n, "sleep 1000")
	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	req := &api.RunPodSandboxRequest{Config: n.podConfig(1), RuntimeHandler: n.handler}
	if _, err := n.RunPodSandbox(t.Context(), req); err == nil {
		t.Error("the start was successful")
	}
	if pids := n.taskShims(t, ""); len(pids) > 0 {
		t.Errorf("its shim is left: %v", pids)
	}
	b, err := os.ReadFile(hanging)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || !dead(pid) {
		t.Errorf("its OCI runtime is left: %d, %v", pid, err)
	}
	n.checkClean(t)
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	if _, err := n.RunPodSandbox(t.Context(), req); err != nil {
		t.Error(err)
	}
}
