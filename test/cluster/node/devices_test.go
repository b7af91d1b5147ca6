package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

const thing = "example.com/thing"

// A devicePlugin serves devices that are /dev/null under other names.
type devicePlugin struct {
	plugin.UnimplementedDevicePluginServer
	ids []string
}

func (*devicePlugin) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *plugin.Empty, s grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	resp := &plugin.ListAndWatchResponse{}
	for _, id := range p.ids {
		resp.Devices = append(resp.Devices, &plugin.Device{ID: id, Health: plugin.Healthy})
	}
	if err := s.Send(resp); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (*devicePlugin) Allocate(_ context.Context, q *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	ids := q.ContainerRequests[0].DevicesIds
	return &plugin.AllocateResponse{ContainerResponses: []*plugin.ContainerAllocateResponse{{
		Envs:    map[string]string{"THING": strings.Join(ids, ",")},
		Devices: []*plugin.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/thing-" + ids[0], Permissions: "rw"}},
	}}}, nil
}

// plug starts a device plugin on a node. The returned function ends the plugin.
func plug(t *testing.T, n *cluster.Node, ids ...string) (stop func()) {
	t.Helper()
	dir := filepath.Join(n.Disk, "kubelet", "device-plugins")
	t.Chdir(dir) // a socket's path has a length limit
	os.Remove(filepath.Join(dir, "thing.sock"))
	l, err := net.Listen("unix", "thing.sock")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	plugin.RegisterDevicePluginServer(s, &devicePlugin{ids: ids})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("unix:kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	r := &plugin.RegisterRequest{Version: plugin.Version, Endpoint: "thing.sock", ResourceName: thing}
	if _, err := plugin.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return s.Stop
}

// TestDevicePlugin checks that a pod gets a plugin's device and keeps it after a SIGKILL of the agent, a restart of the plugin and a
// reboot without a network. A finished pod must release its device. A pod without an available device must be rejected with the same
// reason as in a kubelet.
func TestDevicePlugin(t *testing.T) {
	c := start(t) // not parallel, because the test changes the working directory
	n := c.Node(t, "")
	n.Join()
	ns := c.Namespace(t)
	things := func(allocatable, capacity int64) func(*corev1.Node) bool {
		return func(n *corev1.Node) bool {
			return n.Status.Allocatable.Name(thing, resource.DecimalSI).Value() == allocatable &&
				n.Status.Capacity.Name(thing, resource.DecimalSI).Value() == capacity
		}
	}
	one := "resources: {limits: {" + thing + ": 1}}"
	stop := plug(t, n, "a", "b")
	c.AwaitNode(t, n.Name, "to have two things", things(2, 2))
	c.Apply(t, pod(ns, "keeps", "", one, "sleep")+pod(ns, "ends", "restartPolicy: Never", one, "exit", "0"))
	c.AwaitPod(t, ns, "ends", "to succeed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	c.AwaitReady(t, ns, "keeps")
	has := strings.TrimSpace(strings.TrimPrefix(find(inside(n, ns, "keeps", "env"), "THING="), "THING="))
	if has != "a" && has != "b" {
		t.Fatalf("the pod's devices are %q", has)
	}
	if dev := inside(n, ns, "keeps", "ls", "/dev"); !strings.Contains(dev, "thing-"+has) {
		t.Errorf("/dev contains %s", dev)
	}
	c.Apply(t, pod(ns, "next", "nodeName: "+n.Name, one, "sleep")) // gets the device of the finished pod
	c.AwaitReady(t, ns, "next")
	c.Apply(t, pod(ns, "late", "nodeName: "+n.Name, one, "sleep"))
	late := c.AwaitPod(t, ns, "late", "to be refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if late.Status.Reason != "UnexpectedAdmissionError" ||
		!strings.Contains(late.Status.Message, "requested number of devices unavailable for example.com/thing. Requested: 1, Available: 0") {
		t.Errorf("the rejected pod has the reason %s: %s", late.Status.Reason, late.Status.Message)
	}

	stop()
	c.AwaitNode(t, n.Name, "to have no thing for pods", things(0, 2))
	c.AwaitPod(t, ns, "keeps", "to show that its device is not healthy", func(p *corev1.Pod) bool {
		st := p.Status.ContainerStatuses[0].AllocatedResourcesStatus
		return len(st) == 1 && st[0].Resources[0].ResourceID == corev1.ResourceID(has) &&
			st[0].Resources[0].Health == corev1.ResourceHealthStatusUnhealthy
	})
	n.Kill()
	n.Start()
	ready := func(pods map[string]machine.Pod) bool { return pods["keeps"].Ready() && pods["next"].Ready() }
	n.WaitPods("both to be ready", ready)
	c.AwaitNode(t, n.Name, "to have no thing at all", things(0, 0))
	plug(t, n, "a", "b")
	c.AwaitNode(t, n.Name, "to have two things again", things(2, 2))

	n.Cut(t)
	n.Reboot()
	n.Start()
	n.WaitPods("containers to wait for their device", func(pods map[string]machine.Pod) bool {
		return len(pods) > 1 && !pods["keeps"].Ready() && !pods["next"].Ready()
	})
	plug(t, n, "a", "b")
	n.WaitPods("both to be ready", ready)
	if now := find(inside(n, ns, "keeps", "env"), "THING="); now != "THING="+has {
		t.Errorf("after the reboot the pod's devices are %q", now)
	}
}

// find returns the first line with a prefix.
func find(text, start string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
