package ctrd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/ctrd"
)

// socket serves the node's CRI until the test ends. It returns a client as a tool would use it.
func (n *node) socket(t *testing.T) *cri.Client {
	t.Helper()
	path := filepath.Join(n.run, "tool.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- cri.Serve(ctx, l, n, n.images) }()
	c, err := cri.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestToolsHarmNoPod checks what a tool can do through the socket. It can list and inspect the agent's pods, but not stop or change them.
// It can remove its own sandboxes, also after a restart of the agent. If it creates a sandbox with the metadata of a pod, the result is a
// separate sandbox.
func TestToolsHarmNoPod(t *testing.T) {
	n := newNode(t, 16)
	ctx := t.Context()
	pod, id := n.runPod(t, 1, "wait")
	tool := n.socket(t)
	created, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod, Config: containerConfig("second", "wait")})
	if err != nil {
		t.Fatal(err)
	}
	for verb, call := range map[string]func() error{
		"stop sandbox": func() error {
			_, err := tool.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: pod})
			return err
		},
		"remove sandbox": func() error {
			_, err := tool.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: pod})
			return err
		},
		"remove by ID prefix": func() error {
			_, err := tool.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: pod[:13]})
			return err
		},
		"update sandbox": func() error {
			_, err := tool.UpdatePodSandboxResources(ctx, &api.UpdatePodSandboxResourcesRequest{PodSandboxId: pod})
			return err
		},
		"create": func() error {
			_, err := tool.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod, Config: containerConfig("third", "wait")})
			return err
		},
		"start": func() error {
			_, err := tool.StartContainer(ctx, &api.StartContainerRequest{ContainerId: created.ContainerId})
			return err
		},
		"stop": func() error {
			_, err := tool.StopContainer(ctx, &api.StopContainerRequest{ContainerId: id})
			return err
		},
		"remove": func() error {
			_, err := tool.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: id})
			return err
		},
		"update": func() error {
			_, err := tool.UpdateContainerResources(ctx, &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpuShares: 2}})
			return err
		},
	} {
		if err := call(); !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "pod test/pod1 is managed by this node's agent") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if st, err := tool.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id}); err != nil || st.Status.State != api.ContainerState_CONTAINER_RUNNING {
		t.Errorf("%v, %v", st, err)
	}
	if out, err := tool.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "print", "seen"}, Timeout: 60}); err != nil || string(out.Stdout) != "seen\n" {
		t.Errorf("%v, %v", out, err)
	}
	// A tool that passes the name and UID of a pod gets another sandbox.
	tools, err := tool.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(1)})
	if err != nil || tools.PodSandboxId == pod {
		t.Fatalf("%v, %v", tools, err)
	}
	n.stop(t)
	n.start(t)
	if err := n.removedBy(ctx, tool, pod); !errdefs.IsPermissionDenied(err) {
		t.Errorf("after a restart: %v", err)
	}
	c, err := tool.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: tools.PodSandboxId, Config: containerConfig("own", "wait")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tool.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Error(err)
	}
	if err := n.removedBy(ctx, tool, tools.PodSandboxId); err != nil {
		t.Errorf("its own sandbox: %v", err)
	}
	list, err := n.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Id != pod {
		t.Errorf("the remaining sandboxes are %v, %v", list, err)
	}
}

func (n *node) removedBy(ctx context.Context, c *cri.Client, id string) error {
	_, err := c.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// TestResizeSurvives checks that a restart of the agent keeps the resized resources of a pod and the user of a container. It also checks
// that the runtime keeps no encoded configuration in memory.
func TestResizeSurvives(t *testing.T) {
	n := newNode(t, 16)
	ctx := t.Context()
	c := containerConfig("main", "wait")
	c.Linux.SecurityContext.RunAsUsername = "nina"
	pod, id := n.runContainer(t, 1, c)
	for i := range int64(40) {
		if _, err := n.UpdatePodSandboxResources(ctx, &api.UpdatePodSandboxResourcesRequest{PodSandboxId: pod, Resources: &api.LinuxContainerResources{CpuShares: 4321 - 39 + i}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.UpdateContainerResources(ctx, &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpuShares: 1234 - 39 + i}}); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(n.dir, "state", "containers", id, "record.json")
	before, err := os.Stat(record)
	if err != nil || before.Size() > 24<<10 {
		t.Errorf("the record after many resizes: %v, %v", before, err)
	}
	if _, err := n.UpdateContainerResources(ctx, &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpuShares: 1234}}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(record); err != nil || after.Size() != before.Size() {
		t.Errorf("the record after a resize that changes nothing: %v, %v", after, err)
	}
	if retained := ctrd.RetainedConfigs(n.Runtime); retained != 0 {
		t.Errorf("after the start and the resizes %d bytes of encoded configurations are in memory", retained)
	}
	n.stop(t)
	n.start(t)
	if retained := ctrd.RetainedConfigs(n.Runtime); retained != 0 {
		t.Errorf("after a restart %d bytes of encoded configurations are in memory", retained)
	}
	s, err := n.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
	if err != nil || !strings.Contains(s.Info["info"], "4321") {
		t.Errorf("%v, %v", s, err)
	}
	st, err := n.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
	if err != nil || st.Status.GetResources().GetLinux().GetCpuShares() != 1234 {
		t.Errorf("%v, %v", st, err)
	}
	if u := st.Status.GetUser().GetLinux(); u.GetUid() != 1234 || u.GetGid() != 2345 || !slices.Contains(u.GetSupplementalGroups(), 77) {
		t.Errorf("the container's user is %v", u)
	}
}
