package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/socket"
)

const thing = "example.com/thing"

// A node consists of Plugins, a real Manager and a real store.
type node struct {
	*Plugins
	manager *devicemanager.Manager
	db      *store.Store
	root    string
	changed chan struct{} // capacity 1
	touched chan types.UID
	end     func()
}

func start(t *testing.T, root string) *node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	n := &node{root: root, changed: make(chan struct{}, 1), touched: make(chan types.UID, 100)}
	var err error
	if n.db, err = store.Open(t.Context(), filepath.Join(root, "islet.db"), log); err != nil {
		t.Fatal(err)
	}
	n.manager = devicemanager.New(devicemanager.Config{Store: n.db, Log: log, PodChanged: func(uid types.UID) { n.touched <- uid }, Changed: func() {
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}})
	if err := n.manager.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Plugins = New(Config{Root: root, Sockets: socket.New(socket.Config{Log: log}), Devices: n.manager, Log: log})
	if err := n.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.db.Close()
	})
	t.Cleanup(n.end)
	return n
}

// waitForDevices waits until the node has the given capacity and allocatable.
func (n *node) waitForDevices(t *testing.T, capacity, allocatable int64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		c, a := n.manager.Resources()
		if c.Name(thing, resource.DecimalSI).Value() == capacity && a.Name(thing, resource.DecimalSI).Value() == allocatable {
			return
		}
		select {
		case <-n.changed:
		case <-ctx.Done():
			t.Fatalf("the node has %v, of which %v are allocatable", c, a)
		}
	}
}

func (n *node) pod(t *testing.T, name string, count string) *v1.Pod {
	t.Helper()
	p := podtest.New(name, podtest.Image("i"), podtest.Limits(podtest.List(map[v1.ResourceName]string{thing: count})))
	if err := n.db.UpdatePods(t.Context(), []store.Pod{{Pod: p, Source: "file", Origin: name}}, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func (n *node) admit(t *testing.T, p *v1.Pod) string {
	t.Helper()
	_, refusal, err := n.manager.Admit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return refusal
}

func (n *node) config(t *testing.T, p *v1.Pod) *cri.ContainerConfig {
	t.Helper()
	out := &cri.ContainerConfig{}
	if err := n.manager.Container(t.Context(), p, &p.Spec.Containers[0], out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A fake is a device plugin with a real gRPC server.
type fake struct {
	api.UnimplementedDevicePluginServer
	options *api.DevicePluginOptions
	lists   chan []*api.Device
	started chan []string
	hang    chan struct{} // a call waits until this channel is closed; nil: calls do not wait
}

func newFake(list ...*api.Device) *fake {
	f := &fake{options: &api.DevicePluginOptions{}, lists: make(chan []*api.Device, 10), started: make(chan []string, 10)}
	f.lists <- list
	return f
}

func healthy(ids ...string) (out []*api.Device) {
	for i, id := range ids {
		out = append(out, &api.Device{ID: id, Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(i)}}}})
	}
	return out
}

func (f *fake) GetDevicePluginOptions(ctx context.Context, _ *api.Empty) (*api.DevicePluginOptions, error) {
	if f.hang != nil {
		select {
		case <-f.hang:
		case <-ctx.Done():
		}
	}
	return f.options, nil
}

func (f *fake) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		select {
		case list := <-f.lists:
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (f *fake) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs: map[string]string{"THINGS": strings.Join(ids, ",")}, Annotations: map[string]string{"example.com/a": "b"},
		Mounts:     []*api.Mount{{HostPath: "/usr/lib/thing", ContainerPath: "/lib/thing", ReadOnly: true}},
		Devices:    []*api.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/thing"}},
		CdiDevices: []*api.CDIDevice{{Name: "example.com/thing=" + ids[0]}},
	}}}, nil
}

func (f *fake) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	f.started <- r.DevicesIds
	return &api.PreStartContainerResponse{}, nil
}

func (f *fake) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	ids := slices.Clone(r.ContainerRequests[0].AvailableDeviceIDs)
	slices.Reverse(ids)
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids[:r.ContainerRequests[0].AllocationSize]}}}, nil
}

// serve creates the plugin's socket and serves it. The returned function stops the server.
func (f *fake) serve(t *testing.T, root, socket string) (stop func()) {
	t.Helper()
	path := filepath.Join(root, dirName, socket)
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, f)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return s.Stop
}

func register(t *testing.T, root string, r *api.RegisterRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(root, dirName, socketName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err = api.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true))
	return err
}

func request(endpoint string) *api.RegisterRequest {
	return &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: thing}
}

// TestPlugin checks that pods get the devices of a registered plugin. This also works after a restart of the plugin or of the agent.
func TestPlugin(t *testing.T) {
	root := t.TempDir()
	n := start(t, root)
	f := newFake(healthy("a", "b", "c")...)
	f.options = &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	stop := f.serve(t, root, "thing.sock")
	if err := register(t, root, request("thing.sock")); err != nil {
		t.Fatal(err)
	}
	n.waitForDevices(t, 3, 3)
	p := n.pod(t, "p", "2")
	if refusal := n.admit(t, p); refusal != "" {
		t.Fatal(refusal)
	}
	cfg := n.config(t, p)
	if string(cfg.Envs[0].Value) != "b,c" || cfg.Annotations["example.com/a"] != "b" || !cfg.Mounts[0].Readonly ||
		cfg.Devices[0].Permissions != "rwm" || cfg.CDIDevices[0].Name != "example.com/thing=b" {
		t.Errorf("the container gets %v", cfg)
	}
	if held := n.manager.Holdings(); len(held) != 1 || !slices.Equal(held[0].NUMA["c"], []int64{2}) {
		t.Errorf("devices %+v", held)
	}
	if err := n.manager.Start(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	if ids := <-f.started; !slices.Equal(ids, []string{"b", "c"}) {
		t.Errorf("started with %q", ids)
	}

	sick := healthy("a", "b", "c")
	sick[1].Health = api.Unhealthy
	f.lists <- sick
	n.waitForDevices(t, 3, 2)
	if uid := <-n.touched; uid != p.UID {
		t.Errorf("%s was notified", uid)
	}
	stop()
	n.waitForDevices(t, 3, 0)
	f = newFake(healthy("a", "b", "c")...)
	f.serve(t, root, "other.sock")
	if err := register(t, root, request("other.sock")); err != nil {
		t.Fatal(err)
	}
	n.waitForDevices(t, 3, 3)
	if err := n.manager.Start(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Error(err)
	}

	n.end()
	n = start(t, root)
	if _, err := os.Lstat(filepath.Join(root, dirName, "other.sock")); err == nil {
		t.Error("the plugin is not notified of the agent's start")
	}
	n.waitForDevices(t, 0, 0)
	if got := string(n.config(t, p).Envs[0].Value); got != "b,c" {
		t.Errorf("devices after the agent's restart: %q", got)
	}
	f.lists <- healthy("a", "b", "c")
	f.serve(t, root, "thing.sock")
	if err := register(t, root, request("thing.sock")); err != nil {
		t.Fatal(err)
	}
	n.waitForDevices(t, 3, 3)
	if refusal := n.admit(t, n.pod(t, "q", "2")); !strings.Contains(refusal, "Requested: 2, Available: 1") {
		t.Errorf("refused by %q", refusal)
	}
}

// TestCrowd checks that many plugins can register at the same time, as they do after a restart of the agent. Some plugins end if their only
// registration is rejected.
func TestCrowd(t *testing.T) {
	const crowd = 64
	root := t.TempDir()
	start(t, root).end()
	n := start(t, root)
	f := newFake()
	var all sync.WaitGroup
	for i := range crowd {
		socket := fmt.Sprintf("thing-%d.sock", i)
		f.serve(t, root, socket)
		all.Go(func() {
			r := request(socket)
			r.ResourceName = fmt.Sprintf("example.com/thing-%d", i)
			if err := register(t, root, r); err != nil {
				t.Errorf("plugin %d: %v", i, err)
			}
		})
	}
	all.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.current) != crowd {
		t.Errorf("%d of %d plugins are registered", len(n.current), crowd)
	}
}

// TestWrong checks that the agent rejects invalid registrations and invalid device lists. Other plugins continue to work.
func TestWrong(t *testing.T) {
	root := t.TempDir()
	n := start(t, root)
	f := newFake(healthy("a")...)
	f.serve(t, root, "thing.sock")
	if err := register(t, root, request("thing.sock")); err != nil {
		t.Fatal(err)
	}
	n.waitForDevices(t, 1, 1)
	if err := os.WriteFile(filepath.Join(root, dirName, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, dirName, "thing.sock"), filepath.Join(root, dirName, "link.sock")); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*api.RegisterRequest{
		"version":  {Version: "v1alpha", Endpoint: "thing.sock", ResourceName: thing},
		"name":     {Version: api.Version, Endpoint: "thing.sock", ResourceName: "cpu"},
		"no name":  request(""),
		"above":    request("../thing.sock"),
		"absolute": request("/thing.sock"),
		"itself":   request("."),
		"missing":  request("missing.sock"),
		"file":     request("file.sock"),
		"symlink":  request("link.sock"),
	} {
		if err := register(t, root, r); err == nil {
			t.Errorf("%s: registered", name)
		}
	}
	n.waitForDevices(t, 1, 1)

	hang := newFake()
	hang.hang = make(chan struct{})
	hang.serve(t, root, "hang.sock")
	ctx, stop := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	go func() { hung <- n.connect(ctx, "example.com/hang", filepath.Join(root, dirName, "hang.sock"), nil) }()
	if refusal := n.admit(t, n.pod(t, "p", "1")); refusal != "" {
		t.Error(refusal)
	}
	stop()
	if err := <-hung; err == nil {
		t.Error("one that hangs is registered")
	}
}

// TestHuge checks that a plugin is disconnected if its device list exceeds the size limit.
func TestHuge(t *testing.T) {
	root := t.TempDir()
	n := start(t, root)
	var list []*api.Device
	for i := range 5000 {
		list = append(list, &api.Device{ID: fmt.Sprintf("%01000d", i), Health: api.Healthy})
	}
	f := newFake(healthy("a")...)
	f.serve(t, root, "thing.sock")
	if err := register(t, root, request("thing.sock")); err != nil {
		t.Fatal(err)
	}
	n.waitForDevices(t, 1, 1)
	f.lists <- list
	n.waitForDevices(t, 1, 0)
}
