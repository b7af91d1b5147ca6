package ctrd_test

import (
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestLabelsRefused checks that a container with SELinux labels is rejected on a machine that cannot enforce them.
func TestLabelsRefused(t *testing.T) {
	if selinux.GetEnabled() {
		t.Skip("this machine has SELinux")
	}
	n := newNode(t, 4)
	cfg := n.podConfig(1)
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	ctr := containerConfig("main", "print", "ran")
	ctr.Linux.SecurityContext = &api.LinuxContainerSecurityContext{SelinuxOptions: &api.SELinuxOption{Type: "container_t"}}
	_, err = n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: ctr})
	if err == nil || !strings.Contains(err.Error(), "seLinuxOptions cannot be enforced: SELinux is not enabled") {
		t.Errorf("got %v", err)
	}
}
