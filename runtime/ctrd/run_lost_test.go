package ctrd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// TestExecLost checks a running container whose files for the OCI runtime are removed, so that no command can be started. An exec of a user
// fails with advice, and the container keeps running. A failed exec probe makes the pod not ready, and the pod is started again. Otherwise
// the probe would fail forever.
func TestExecLost(t *testing.T) {
	n := newNode(t, 16)
	defer func() {
		n.removeAll(t)
		for _, c := range cgroupDirs(n.cgroup) { // the agent does this when it removes a pod
			removeCgroup(c)
		}
	}()
	lost := func(err error) bool { return err != nil && strings.Contains(err.Error(), "restart its pod") }
	for i, part := range []string{"b", "oci"} {
		t.Run(part, func(t *testing.T) {
			pod, id := n.runPod(t, i, "wait")
			path := filepath.Join(n.run, part, id)
			_ = unix.Unmount(filepath.Join(path, "rootfs"), unix.MNT_DETACH)
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			ready := func() bool {
				s, err := n.PodSandboxStatus(t.Context(), &api.PodSandboxStatusRequest{PodSandboxId: pod})
				if err != nil {
					t.Fatal(err)
				}
				return s.Status.State == api.PodSandboxState_SANDBOX_READY
			}
			if err := n.Stream(t.Context(), id, cri.ExecOptions{Command: []string{"/prog", "true"}}); !lost(err) {
				t.Errorf("a command: %v", err)
			}
			if !ready() || n.status(t, id).State != api.ContainerState_CONTAINER_RUNNING {
				t.Error("a failed command ended the pod")
			}
			if _, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "true"}, Timeout: 60}); !lost(err) {
				t.Errorf("a probe: %v", err)
			}
			if ready() {
				t.Error("the pod is still ready, so it is not started again")
			}
		})
	}
}

// TestShimWithoutSocket checks a shim whose socket was removed while no agent was running. No agent can connect to such a shim. The next
// agent kills the shim with its containers, and no process is left.
func TestShimWithoutSocket(t *testing.T) {
	n := newNode(t, 16)
	_, id := n.runPod(t, 0, "wait")
	before := n.shims(t, "")
	if len(before) != 1 {
		t.Fatalf("the running shims are %v", before)
	}
	n.stop(t)
	sockets, err := filepath.Glob(filepath.Join(n.run, "s", "*"))
	if err != nil || len(sockets) == 0 {
		t.Fatal("no sockets", err)
	}
	for _, s := range sockets {
		if err := os.Remove(s); err != nil {
			t.Fatal(err)
		}
	}
	n.start(t)
	if s := n.status(t, id); s.State != api.ContainerState_CONTAINER_EXITED || s.Reason != "ShimLost" {
		t.Errorf("its container is %v, %s", s.State, s.Reason)
	}
	eventually(t, "the shim has ended", func() bool { return len(n.shims(t, "")) == 0 })
}
