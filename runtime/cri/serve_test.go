package cri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
)

// serve serves a runtime on a socket until the test ends. It returns the path of the socket.
func serve(t *testing.T, r cri.Runtime, i cri.Images) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cri.Serve(ctx, l, r, i) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// dial returns a new connection.
func dial(t *testing.T, path string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sandboxOf(name string, labels map[string]string) *api.RunPodSandboxRequest {
	return &api.RunPodSandboxRequest{Config: &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: name, Uid: name}, Labels: labels}}
}

// TestManyClients checks that 300 clients can be connected at the same time and make calls.
func TestManyClients(t *testing.T) {
	r := fake.New("i")
	path := serve(t, r, r)
	var g errgroup.Group
	g.SetLimit(20) // with more concurrent handshakes, a busy machine may exceed greetTime
	for range 300 {
		c := dial(t, path)
		g.Go(func() error {
			_, err := api.NewRuntimeServiceClient(c).Version(t.Context(), &api.VersionRequest{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := api.NewImageServiceClient(dial(t, path)).ListImages(t.Context(), &api.ListImagesRequest{}); err != nil {
		t.Errorf("another client: %v", err)
	}
}

// TestSilentClient checks a client that starts calls but does not send their requests. It can block other clients only until it
// disconnects.
func TestSilentClient(t *testing.T) {
	path := serve(t, fake.New(), nil)
	silent := dial(t, path)
	for range 100 {
		s, err := silent.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/runtime.v1.RuntimeService/Version")
		if err != nil {
			t.Fatal(err)
		}
		_ = s // the client sends nothing
	}
	marked := make(chan error, 1)
	go func() {
		_, err := api.NewRuntimeServiceClient(dial(t, path)).Version(t.Context(), &api.VersionRequest{})
		marked <- err
	}()
	silent.Close()
	if err := <-marked; err != nil {
		t.Error(err)
	}
}

// TestLargeRequest checks that a request larger than maxRequest does not reach the runtime.
func TestLargeRequest(t *testing.T) {
	r := fake.New()
	c := api.NewRuntimeServiceClient(dial(t, serve(t, r, nil)))
	_, err := c.RunPodSandbox(t.Context(), sandboxOf("p", map[string]string{"x": strings.Repeat("x", 5<<20)}))
	if status.Code(err) != codes.ResourceExhausted || len(r.Calls()) != 0 {
		t.Errorf("%v, calls %v", err, r.Calls())
	}
	if _, err := c.RunPodSandbox(t.Context(), sandboxOf("p", map[string]string{"x": strings.Repeat("x", 3<<20)})); err != nil {
		t.Errorf("a request of 3 MiB: %v", err)
	}
}

// TestMessageBombs checks that a request is rejected before it is decoded if it would be too large when decoded.
func TestMessageBombs(t *testing.T) {
	r := fake.New()
	c := api.NewRuntimeServiceClient(dial(t, serve(t, r, nil)))
	for name, bomb := range map[string]*api.PodSandboxConfig{
		"ports":  {PortMappings: slices.Repeat([]*api.PortMapping{{}}, 500_000)},
		"labels": {DnsConfig: &api.DNSConfig{Servers: make([]string, 1_000_000)}},
	} {
		if _, err := c.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: bomb}); err == nil || !strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) || len(r.Calls()) != 0 {
			t.Errorf("%s: %v, calls %v", name, err, r.Calls())
		}
	}
}

// A barrier is a runtime whose CreateContainer blocks until the test lets all calls continue.
type barrier struct {
	cri.Runtime
	arrived chan struct{}
	all     chan struct{}
}

func (m barrier) CreateContainer(ctx context.Context, _ *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	m.arrived <- struct{}{}
	select {
	case <-m.all:
		return &api.CreateContainerResponse{ContainerId: "c"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestOrdinaryCalls checks that 200 ordinary calls of CreateContainer can run at the same time. Lists work meanwhile.
func TestOrdinaryCalls(t *testing.T) {
	const calls, clients = 200, 4
	m := barrier{fake.New(), make(chan struct{}, calls), make(chan struct{})}
	path := serve(t, m, nil)
	req := &api.CreateContainerRequest{PodSandboxId: "p", Config: &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "c"}}, SandboxConfig: sandboxOf("p", nil).Config}
	for i := range 100 {
		req.Config.Envs = append(req.Config.Envs, &api.KeyValue{Key: fmt.Sprintf("SERVICE_%d_PORT_8080_TCP_ADDR", i), Value: []byte(strings.Repeat("x", 50))})
		req.Config.Mounts = append(req.Config.Mounts, &api.Mount{HostPath: fmt.Sprintf("/var/lib/kubelet/pods/%d/volumes/v", i), ContainerPath: "/v"})
	}
	g, ctx := errgroup.WithContext(t.Context()) // the first error cancels all calls
	for range clients {
		c := api.NewRuntimeServiceClient(dial(t, path))
		for range calls / clients {
			g.Go(func() error {
				_, err := c.CreateContainer(ctx, req)
				return err
			})
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	for i := range calls {
		select {
		case <-m.arrived:
		case err := <-ended:
			t.Fatalf("after %d of %d calls: %v", i, calls, err)
		}
	}
	tool := api.NewRuntimeServiceClient(dial(t, path))
	if _, err := tool.ListContainers(t.Context(), &api.ListContainersRequest{}); err != nil {
		t.Errorf("a concurrent list: %v", err)
	}
	s, err := tool.StreamContainers(t.Context(), &api.StreamContainersRequest{})
	collect(t, s, err, (*api.StreamContainersResponse).GetContainers)
	close(m.all)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLargeCalls checks that 40 concurrent large requests succeed.
func TestLargeCalls(t *testing.T) {
	path := serve(t, fake.New(), nil)
	var g errgroup.Group
	for i := range 40 {
		c := api.NewRuntimeServiceClient(dial(t, path))
		g.Go(func() error {
			_, err := c.RunPodSandbox(t.Context(), sandboxOf(fmt.Sprint("p", i), map[string]string{"x": strings.Repeat("x", 1<<20)}))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestUnknownMethods checks that a call of an unknown method no longer counts towards maxReceiving after it has ended.
func TestUnknownMethods(t *testing.T) {
	c := dial(t, serve(t, fake.New(), nil))
	for i := range 200 {
		err := c.Invoke(t.Context(), fmt.Sprintf("/runtime.v1.RuntimeService/No%d", i), &api.VersionRequest{}, &api.VersionResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
	}
	if _, err := api.NewRuntimeServiceClient(c).Version(t.Context(), &api.VersionRequest{}); err != nil {
		t.Error(err)
	}
}

// collect reads a streamed list to its end. It returns the items and the number of messages.
func collect[T, P any](t *testing.T, s grpc.ServerStreamingClient[P], err error, of func(*P) []T) (out []T, messages int) {
	t.Helper()
	for err == nil {
		var p *P
		if p, err = s.Recv(); err == nil {
			if len(of(p)) == 0 {
				t.Error("a message without items")
			}
			out = append(out, of(p)...)
			messages++
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return out, messages
}

// TestStreamedLists checks that a streamed list contains every item once. The size of its messages is limited.
func TestStreamedLists(t *testing.T) {
	r := fake.New("i:1", "i:2")
	conn := dial(t, serve(t, r, r))
	c, images := api.NewRuntimeServiceClient(conn), api.NewImageServiceClient(conn)
	ctx := t.Context()
	s, err := c.StreamPodSandboxes(ctx, &api.StreamPodSandboxesRequest{})
	if list, _ := collect(t, s, err, (*api.StreamPodSandboxesResponse).GetPodSandboxes); len(list) != 0 {
		t.Errorf("an empty list: %v", list)
	}
	const pods = 60
	for i := range pods {
		p, err := r.RunPodSandbox(ctx, sandboxOf(fmt.Sprint("p", i), map[string]string{"odd": fmt.Sprint(i % 2), "long": strings.Repeat("x", 100<<10)}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: p.PodSandboxId, Config: &api.ContainerConfig{
			Metadata: &api.ContainerMetadata{Name: "c"}, Image: &api.ImageSpec{Image: "i:1"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err = c.StreamPodSandboxes(ctx, &api.StreamPodSandboxesRequest{})
	list, messages := collect(t, s, err, (*api.StreamPodSandboxesResponse).GetPodSandboxes)
	ids := map[string]bool{}
	for _, p := range list {
		ids[p.Id] = true
	}
	if len(list) != pods || len(ids) != pods || messages < 6 || messages > pods {
		t.Errorf("%d sandboxes, %d of them different, in %d messages", len(list), len(ids), messages)
	}
	s, err = c.StreamPodSandboxes(ctx, &api.StreamPodSandboxesRequest{Filter: &api.PodSandboxFilter{LabelSelector: map[string]string{"odd": "1"}}})
	if list, _ := collect(t, s, err, (*api.StreamPodSandboxesResponse).GetPodSandboxes); len(list) != pods/2 {
		t.Errorf("filtered: %d", len(list))
	}
	cs, err := c.StreamContainers(ctx, &api.StreamContainersRequest{})
	if list, _ := collect(t, cs, err, (*api.StreamContainersResponse).GetContainers); len(list) != pods {
		t.Errorf("%d containers", len(list))
	}
	is, err := images.StreamImages(ctx, &api.StreamImagesRequest{})
	if list, _ := collect(t, is, err, (*api.StreamImagesResponse).GetImages); len(list) != 2 {
		t.Errorf("images: %v", list)
	}
	st, err := c.StreamContainerStats(ctx, &api.StreamContainerStatsRequest{})
	collect(t, st, err, (*api.StreamContainerStatsResponse).GetContainerStats)
	ps, err := c.StreamPodSandboxStats(ctx, &api.StreamPodSandboxStatsRequest{})
	collect(t, ps, err, (*api.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	ms, err := c.StreamPodSandboxMetrics(ctx, &api.StreamPodSandboxMetricsRequest{})
	collect(t, ms, err, (*api.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
}

// follow subscribes to events. It returns after the subscription has begun.
func follow(t *testing.T, path string, options ...grpc.DialOption) grpc.ServerStreamingClient[api.ContainerEventResponse] {
	t.Helper()
	s, err := api.NewRuntimeServiceClient(dial(t, path, options...)).GetContainerEvents(t.Context(), &api.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEventsUnderLoad checks that a client that is slow to read its first event receives all events in order.
func TestEventsUnderLoad(t *testing.T) {
	r := fake.New()
	path := serve(t, r, nil)
	s := follow(t, path)
	const pods = 500
	var want, got []string
	for i := range pods {
		p, err := r.RunPodSandbox(t.Context(), sandboxOf(fmt.Sprint("p", i), nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{PodSandboxId: p.PodSandboxId}); err != nil {
			t.Fatal(err)
		}
		want = append(want, p.PodSandboxId+" CREATED", p.PodSandboxId+" STARTED", p.PodSandboxId+" STOPPED", p.PodSandboxId+" DELETED")
	}
	for range want {
		e, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ContainerId+" "+strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d events, want %d; the last ones are %v", len(got), len(want), got[max(0, len(got)-8):])
	}
}

// TestEventsOfSlowClient checks a client that stops reading. It receives the first events without a gap, and then an error.
func TestEventsOfSlowClient(t *testing.T) {
	r := fake.New()
	const window = 64 << 10 // the window is fixed, because it would grow on a busy machine
	s := follow(t, serve(t, r, nil), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	big := map[string]string{"big": strings.Repeat("x", 200<<10)}
	for i := range 100 {
		if _, err := r.RunPodSandbox(t.Context(), sandboxOf(fmt.Sprint("p", i), big)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; ; i++ {
		e, err := s.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable || i == 0 || i == 200 {
				t.Errorf("after %d events: %v", i, err)
			}
			break
		}
		if want := fmt.Sprint("p", i/2); e.PodSandboxStatus.Metadata.Name != want {
			t.Fatalf("got %s, want %s", e.PodSandboxStatus.Metadata.Name, want)
		}
	}
}

// TestEventClients checks the limit on the number of event clients. A client that has disconnected no longer counts.
func TestEventClients(t *testing.T) {
	r := fake.New()
	path := serve(t, r, nil)
	first := dial(t, path)
	s, err := api.NewRuntimeServiceClient(first).GetContainerEvents(t.Context(), &api.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	for range 15 {
		follow(t, path)
	}
	late, err := api.NewRuntimeServiceClient(dial(t, path)).GetContainerEvents(t.Context(), &api.GetEventsRequest{})
	if err == nil {
		_, err = late.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a client beyond the limit: %v", err)
	}
	first.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	next := api.NewRuntimeServiceClient(dial(t, path))
	for i := 0; ; i++ {
		again, err := next.GetContainerEvents(ctx, &api.GetEventsRequest{})
		if err == nil {
			_, err = again.Header()
		}
		if _, err := r.RunPodSandbox(ctx, sandboxOf(fmt.Sprint("p", i), nil)); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			if _, err = again.Recv(); err == nil {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("a disconnected client still counts: %v", err)
		}
	}
}

// TestEventsEndWithServer checks that the streams of events end when the server ends, with a reason. Otherwise each end of the agent waited
// some seconds for its clients.
func TestEventsEndWithServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cri.Serve(ctx, l, fake.New(), nil) }()
	s, err := api.NewRuntimeServiceClient(dial(t, path)).GetContainerEvents(t.Context(), &api.GetEventsRequest{})
	if err == nil {
		_, err = s.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the runtime ends") {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A byTool is a runtime that sends a value to its channel at each call. The value is true if the call is marked by ByTool.
type byTool struct {
	cri.Runtime
	marked chan bool
}

func (b byTool) Version(ctx context.Context, _ *api.VersionRequest) (*api.VersionResponse, error) {
	b.marked <- cri.IsByTool(ctx)
	return nil, fmt.Errorf("no version: %w", errdefs.ErrPermissionDenied)
}

func (b byTool) ListPodSandbox(ctx context.Context, _ *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	b.marked <- cri.IsByTool(ctx)
	return nil, fmt.Errorf("no list: %w", errdefs.ErrFailedPrecondition)
}

// TestCallsAreTools checks that a call through a socket is marked by ByTool. Its error keeps its code.
func TestCallsAreTools(t *testing.T) {
	b := byTool{marked: make(chan bool, 1)}
	path := serve(t, b, nil)
	c, err := cri.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Version(t.Context(), &api.VersionRequest{}); !errdefs.IsPermissionDenied(err) || !<-b.marked {
		t.Errorf("got %v", err)
	}
	s, err := api.NewRuntimeServiceClient(dial(t, path)).StreamPodSandboxes(t.Context(), &api.StreamPodSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.FailedPrecondition || !<-b.marked {
		t.Errorf("got %v", err)
	}
	if cri.IsByTool(t.Context()) {
		t.Error("an unmarked context is marked")
	}
}
