package dra

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	old "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

const driverName = "gpu.example.com"

// A world is a Manager with a real store and a fake API server for ResourceClaims.
type world struct {
	*Manager
	t       *testing.T
	root    string
	db      *store.Store
	touched chan types.UID

	mu      sync.Mutex
	objects map[string]*resourcev1.ResourceClaim
	renewed func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), objects: map[string]*resourcev1.ResourceClaim{}, touched: make(chan types.UID, 100), renewed: func() {}}
	w.start()
	t.Cleanup(func() { w.Close(); w.db.Close() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	if w.db != nil {
		w.Close()
		w.db.Close()
	}
	var err error
	if w.db, err = store.Open(context.Background(), filepath.Join(w.root, "islet.db"), slog.New(slog.DiscardHandler)); err != nil {
		w.t.Fatal(err)
	}
	w.Manager = New(Config{Store: w.db, Objects: w, PodChanged: func(uid types.UID) { w.touched <- uid }, Log: slog.New(slog.DiscardHandler)})
	if err := w.Load(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ResourceClaim(_ *v1.Pod, name string) (*resourcev1.ResourceClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.objects[name]; c != nil {
		return c.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
}

func (w *world) Renew(context.Context, *v1.Pod) error { w.renewed(); return nil }

func (w *world) object(name string, users ...*v1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	for _, p := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: driverName, Pool: "p", Device: "d"}}}}
	w.mu.Lock()
	w.objects[name] = c
	w.mu.Unlock()
	return c
}

func pod(name string, claims ...string) *v1.Pod {
	p := podtest.New(name)
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: c, ResourceClaimName: new(c)})
		asked := &p.Spec.Containers[0].Resources
		asked.Claims = append(asked.Claims, v1.ResourceClaim{Name: c})
	}
	return p
}

// A fake is a DRA driver with a real gRPC server.
type fake struct {
	api.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	mu     sync.Mutex
	said   []string
	fail   string
	claims map[string]*api.NodePrepareResourceResponse // responses for these claims; the other claims get a default response
	health chan []*health.DeviceHealth                 // nil: the driver reports no health
	serves []string                                    // health services of the driver; empty: v1
	hushed bool                                        // the driver does not advertise the health services
	hold   chan struct{}                               // if not nil, unprepare sends to this channel and then waits for a send
	server *grpc.Server
	socket string
}

// kill stops the driver as SIGKILL would: the socket's file stays, but no process listens.
func (f *fake) kill() {
	f.server.Stop()
	if l, err := net.Listen("unix", f.socket); err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
}

func (f *fake) NodePrepareResources(_ context.Context, q *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims != nil {
		return &api.NodePrepareResourcesResponse{Claims: f.claims}, nil
	}
	out := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range q.Claims {
		f.said = append(f.said, "prepare "+c.Name)
		out.Claims[c.Uid] = &api.NodePrepareResourceResponse{Error: f.fail, Devices: []*api.Device{
			{RequestNames: []string{"r"}, PoolName: "p", DeviceName: "d", CdiDeviceIds: []string{"example.com/gpu=" + c.Name}},
			{RequestNames: []string{"s"}, PoolName: "p", DeviceName: "e"},
		}}
	}
	return out, nil
}

func (f *fake) NodeUnprepareResources(_ context.Context, q *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse,
	error) {
	if f.hold != nil {
		f.hold <- struct{}{}
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range q.Claims {
		f.said = append(f.said, "unprepare "+c.Name)
		out.Claims[c.Uid] = &api.NodeUnprepareResourceResponse{Error: f.fail}
	}
	return out, nil
}

func (f *fake) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	s grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	method, _ := grpc.Method(s.Context())
	f.mu.Lock()
	f.said = append(f.said, "watch "+method)
	f.mu.Unlock()
	for {
		select {
		case list := <-f.health:
			if err := s.Send(&health.NodeWatchResourcesResponse{Devices: list}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (f *fake) recordedCalls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.said, ", ")
	f.said = nil
	return out
}

// serve creates the driver's socket and serves it.
func (f *fake) serve(t *testing.T, beta bool) plugins.Plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dra.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	version := "v1.DRAPlugin"
	if beta {
		version = "v1beta1.DRAPlugin"
		d := api.DRAPlugin_ServiceDesc
		d.ServiceName = old.DRAPlugin_ServiceDesc.ServiceName
		s.RegisterService(&d, f)
	} else {
		api.RegisterDRAPluginServer(s, f)
	}
	versions := []string{"v1.Other", version}
	if f.health != nil {
		if f.serves == nil {
			f.serves = []string{healthV1}
		}
		for _, name := range f.serves {
			d := health.DRAResourceHealth_ServiceDesc
			d.ServiceName = name
			s.RegisterService(&d, f)
		}
		if !f.hushed {
			versions = append(versions, f.serves...)
		}
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	f.server, f.socket = s, path
	return plugins.Plugin{Name: driverName, Endpoint: path, Versions: versions}
}

func (w *world) register(p plugins.Plugin) {
	w.t.Helper()
	if err := errors.Join(w.Validate(p), w.Register(w.t.Context(), p)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) prepare(p *v1.Pod, wrong string) {
	w.t.Helper()
	err := w.Prepare(w.t.Context(), p)
	if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
		w.t.Errorf("%s: got %v, not %q", p.Name, err, wrong)
	}
}

func cdi(w *world, p *v1.Pod) (out []string) {
	w.t.Helper()
	cfg := &cri.ContainerConfig{}
	if err := w.Container(w.t.Context(), p, &p.Spec.Containers[0], cfg); err != nil {
		w.t.Fatal(err)
	}
	for _, d := range cfg.CDIDevices {
		out = append(out, d.Name)
	}
	return out
}
