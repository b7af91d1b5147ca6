package ctrd_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/namespace"
)

// TestPodNetworkFigures checks the network figures of a pod. The loopback interface is not included.
func TestPodNetworkFigures(t *testing.T) {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("no network interface can be created")
	}
	n := newNode(t, 16)
	cfg := &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: "pod", Namespace: "test", Uid: "figures"}, LogDirectory: t.TempDir(),
		Linux: &api.LinuxPodSandboxConfig{CgroupParent: n.cgroup, SecurityContext: &api.LinuxSandboxSecurityContext{NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER}}},
	}
	pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer n.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{PodSandboxId: pod.PodSandboxId})
	network := func() *api.NetworkUsage {
		t.Helper()
		st, err := n.PodSandboxStats(t.Context(), &api.PodSandboxStatsRequest{PodSandboxId: pod.PodSandboxId})
		if err != nil {
			t.Fatal(err)
		}
		return st.Stats.Linux.Network
	}
	if got := network(); got != nil {
		t.Errorf("a sandbox without a process: %v", got)
	}
	c, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, SandboxConfig: cfg, Config: &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: "main"}, Image: &api.ImageSpec{Image: crisuite.ImageRef}, Args: []string{"wait"}, LogPath: "0.log",
		Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{NamespaceOptions: cfg.Linux.SecurityContext.NamespaceOptions}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	path, _ := n.SandboxNetwork(pod.PodSandboxId)
	for _, name := range []string{"eth0", "eth1"} {
		defer makeInterface(t, path, name).Close()
	}
	got := network()
	if got.GetDefaultInterface().GetName() != "eth0" || len(got.GetInterfaces()) != 1 || got.Interfaces[0].Name != "eth1" ||
		got.Timestamp == 0 || got.DefaultInterface.RxBytes == nil || got.DefaultInterface.TxErrors == nil {
		t.Errorf("got %v", got)
	}
}

// makeInterface creates an interface in a network namespace. The interface exists until the file is closed.
func makeInterface(t *testing.T, netns, name string) *os.File {
	t.Helper()
	var f *os.File
	if err := namespace.Do(netns, func() (err error) {
		if f, err = os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
			return err
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, req)
	}); err != nil {
		t.Fatal(err)
	}
	return f
}
