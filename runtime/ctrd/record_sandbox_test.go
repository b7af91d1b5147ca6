package ctrd_test

import (
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSandboxLostByPowerCut checks a power failure that destroys the records of sandboxes. Only the end of a container is synced. A
// container whose end was recorded keeps its sandbox and its exit code, so that its pod does not run again.
func TestSandboxLostByPowerCut(t *testing.T) {
	n := newNode(t, 2)
	cfg := n.podConfig(0)
	pod, first := n.runPod(t, 0, "exit", "7")
	second, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: cfg, Config: containerConfig("other", "ignore")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: second.ContainerId}); err != nil {
		t.Fatal(err)
	}
	running, _ := n.runPod(t, 1, "ignore")
	eventually(t, "it ends", func() bool { return n.status(t, first).State == api.ContainerState_CONTAINER_EXITED })
	n.stop(t)
	n.reboot(t)
	for range 2 { // another power cut may destroy the restored record
		for _, id := range []string{pod, running} {
			if err := os.WriteFile(filepath.Join(n.dir, "state", "sandboxes", id+".json"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.start(t)
		if st := n.status(t, first); st.State != api.ContainerState_CONTAINER_EXITED || st.ExitCode != 7 {
			t.Errorf("the container whose end was recorded: %v", st)
		}
		if st := n.status(t, second.ContainerId); st.State != api.ContainerState_CONTAINER_EXITED || st.Reason != "Unknown" {
			t.Errorf("the container that was running: %v", st)
		}
		s, err := n.PodSandboxStatus(t.Context(), &api.PodSandboxStatusRequest{PodSandboxId: pod})
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Status; st.State != api.PodSandboxState_SANDBOX_NOTREADY || st.Metadata.Uid != cfg.Metadata.Uid || st.CreatedAt == 0 {
			t.Errorf("its sandbox: %v", st)
		}
		if _, err := n.PodSandboxStatus(t.Context(), &api.PodSandboxStatusRequest{PodSandboxId: running}); err == nil {
			t.Error("the sandbox without a recorded end exists")
		}
		n.stop(t)
	}
	n.start(t)
}
