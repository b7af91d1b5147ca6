package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
)

var (
	_ cri.Runtime  = (*Runtime)(nil)
	_ cri.Events   = (*Runtime)(nil)
	_ cri.Streamer = Streaming{}
)

func sandboxOf(uid string, attempt uint32) *api.RunPodSandboxRequest {
	return &api.RunPodSandboxRequest{Config: &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid, Attempt: attempt}, Labels: map[string]string{keys.PodUID: uid}}}
}

// A strict is a runtime that rejects a name that exists, as containerd does. It returns an error after it has created a sandbox.
type strict struct {
	*fake.Runtime
	made map[string]bool
}

func (s strict) RunPodSandbox(ctx context.Context, q *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	name := fmt.Sprint(q.Config.Metadata)
	if s.made[name] {
		return nil, errors.New("failed to reserve sandbox name")
	}
	s.made[name] = true
	if _, err := s.Runtime.RunPodSandbox(ctx, q); err != nil {
		return nil, err
	}
	return nil, errors.New("the answer is lost")
}

func (s strict) CreateContainer(ctx context.Context, q *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	name := q.PodSandboxId + fmt.Sprint(q.Config.Metadata)
	if s.made[name] {
		return nil, errors.New("failed to reserve container name")
	}
	s.made[name] = true
	return s.Runtime.CreateContainer(ctx, q)
}

// TestMakingTwice checks that a repeated request to create an object returns the existing object, although the runtime rejects a name that
// exists.
func TestMakingTwice(t *testing.T) {
	f := fake.New("i")
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, strict{f, map[string]bool{}}, f)
	r := open(t, path)
	first, err := r.RunPodSandbox(t.Context(), sandboxOf("a", 0))
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.RunPodSandbox(t.Context(), sandboxOf("a", 0))
	if err != nil || again.PodSandboxId != first.PodSandboxId {
		t.Errorf("%v, %v", again, err)
	}
	q := &api.CreateContainerRequest{PodSandboxId: first.PodSandboxId, Config: &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "c"}, Image: &api.ImageSpec{Image: "i"}}}
	c, err := r.CreateContainer(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := r.CreateContainer(t.Context(), q); err != nil || twice.ContainerId != c.ContainerId {
		t.Errorf("%v, %v", twice, err)
	}
}

// An old is a runtime without events.
type old struct{ cri.Runtime }

// TestChangesWithoutEvents checks that changes are reported even if the runtime has no events.
func TestChangesWithoutEvents(t *testing.T) {
	f := fake.New("i")
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, old{f}, f)
	r := open(t, path)
	if _, err := r.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- r.ContainerEvents(ctx, func(e *api.ContainerEventResponse) { changed <- e.PodSandboxStatus.Metadata.Uid })
	}()
	// The changes bypass the client, as if the containers ended by themselves.
	sb, err := f.RunPodSandbox(ctx, sandboxOf("a", 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != "a" {
		t.Errorf("made: %q", got)
	}
	if _, err := f.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != "a" {
		t.Errorf("stopped: %q", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRuntimeGoesAndComes checks that Await waits until the runtime responds. When the runtime stops, ContainerEvents returns an error. The
// next call of ContainerEvents returns errBack when the runtime responds again.
func TestRuntimeGoesAndComes(t *testing.T) {
	f := fake.New()
	path := filepath.Join(t.TempDir(), "s")
	changed := make(chan struct{}, 100)
	r := open(t, path, func(c *Config) { c.Changed = func() { changed <- struct{}{} } })
	if err := r.Ready(); !errors.Is(err, errEarly) {
		t.Errorf("before the runtime was started: %v", err)
	}
	if _, err := r.Version(t.Context(), &api.VersionRequest{}); !errdefs.IsUnavailable(err) {
		t.Errorf("before the runtime was started: %v", err)
	}
	stop := serve(t, path, f, f)
	waited, err := r.Await(t.Context())
	if err != nil || !waited || r.Ready() != nil || r.CheckPodNetwork() != nil {
		t.Errorf("waited %v, %v; ready: %v, %v", waited, err, r.Ready(), r.CheckPodNetwork())
	}
	<-changed
	if _, err := f.RunPodSandbox(t.Context(), sandboxOf("a", 0)); err != nil {
		t.Fatal(err)
	}
	events, seen := make(chan error, 1), make(chan struct{}, 100)
	go func() {
		events <- r.ContainerEvents(t.Context(), func(*api.ContainerEventResponse) { seen <- struct{}{} })
	}()
	<-seen // otherwise the runtime may stop before the call, which then waits for it
	stop()
	if err := <-events; err == nil {
		t.Error("ContainerEvents returned no error")
	}
	for r.IsResponding() {
		r.mu.Lock()
		stateChanged := r.stateChanged
		r.mu.Unlock()
		if r.IsResponding() {
			<-stateChanged
		}
	}
	if r.Ready() != nil || !errors.Is(r.CheckPodNetwork(), errDown) {
		t.Errorf("after the runtime has stopped: %v, %v", r.Ready(), r.CheckPodNetwork())
	}
	go func() { events <- r.ContainerEvents(t.Context(), func(*api.ContainerEventResponse) {}) }()
	serve(t, path, f, f)
	if err := <-events; !errors.Is(err, errBack) {
		t.Errorf("got %v", err)
	}
}

// TestReady checks that Ready returns an error after the runtime has not responded for downAfter. The error has the same text as in a
// kubelet.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{state: state{isAnswering: true, at: time.Now()}}
		if r.Ready() != nil {
			t.Error(r.Ready())
		}
		r.state.isAnswering = false
		time.Sleep(downAfter - time.Second)
		if r.Ready() != nil {
			t.Error(r.Ready())
		}
		time.Sleep(time.Second)
		if !errors.Is(r.Ready(), errDown) {
			t.Error(r.Ready())
		}
	})
	rt, network := readConditions(&api.RuntimeStatus{Conditions: []*api.RuntimeCondition{
		{Type: api.RuntimeReady, Status: true}, {Type: api.NetworkReady, Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}}})
	if rt != nil || network.Error() != "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized" {
		t.Errorf("%v, %v", rt, network)
	}
	if rt, network = readConditions(nil); rt == nil || network == nil {
		t.Error("a runtime that reports nothing is ready")
	}
}

// A featured is a runtime whose features can change.
type featured struct {
	cri.Runtime
	features *atomic.Pointer[api.RuntimeFeatures]
}

func (f featured) Status(ctx context.Context, q *api.StatusRequest) (*api.StatusResponse, error) {
	resp, err := f.Runtime.Status(ctx, q)
	if err == nil {
		resp.Features = f.features.Load()
	}
	return resp, err
}

// TestFeatures checks that Features returns the features of the last response, and that a change of the features is reported. They stay
// while the runtime does not respond. Fields that this version does not know are dropped.
func TestFeatures(t *testing.T) {
	f, path := fake.New(), filepath.Join(t.TempDir(), "s")
	now := &atomic.Pointer[api.RuntimeFeatures]{}
	var changes int
	c := Config{Endpoint: path, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler), Changed: func() { changes++ }}
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check := func(when string, answers bool, want *api.RuntimeFeatures, changed int) {
		t.Helper()
		before := changes
		if r.CheckStatus(t.Context()) != answers {
			t.Errorf("%s: responds %v", when, !answers)
		}
		if got := Features(r); !proto.Equal(got, want) {
			t.Errorf("%s: %v, not %v", when, got, want)
		}
		if changes-before != changed {
			t.Errorf("%s: %d changes, not %d", when, changes-before, changed)
		}
	}
	none := &api.RuntimeFeatures{}
	if got := Features(r); !proto.Equal(got, none) {
		t.Errorf("before the first response: %v", got)
	}
	stop := serve(t, path, featured{f, now}, f)
	check("an old runtime", true, none, 1)
	check("an old runtime", true, none, 0)
	groups, options := &api.RuntimeFeatures{SupplementalGroupsPolicy: true}, &api.RuntimeFeatures{MountOptions: true}
	sent := proto.Clone(groups).(*api.RuntimeFeatures)
	sent.ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x01, 0x01}) // the field 31, with the value 1
	now.Store(sent)
	check("a new runtime", true, groups, 1)
	check("a new runtime", true, groups, 0)
	now.Store(options)
	check("another runtime", true, options, 1)
	now.Store(nil)
	check("replaced by an old runtime", true, none, 1)
	now.Store(groups)
	check("replaced by a new runtime", true, groups, 1)
	stop()
	check("after the runtime has stopped", false, groups, 0)
}

// A hangs is a runtime whose ListContainers does not return.
type hangs struct{ *fake.Runtime }

func (hangs) ListContainers(ctx context.Context, _ *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHangingRuntime checks that a call to a runtime that does not respond fails after runtimeRequestTimeout.
func TestHangingRuntime(t *testing.T) {
	f := fake.New()
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, hangs{f}, f)
	r := open(t, path, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	if _, err := r.ListContainers(t.Context(), &api.ListContainersRequest{}); err == nil || !strings.Contains(err.Error(), "the container runtime has not answered ListContainers in") {
		t.Errorf("got %v", err)
	}
}

func TestMost(t *testing.T) {
	c := callTimer{timeout: time.Minute}
	for _, tt := range []struct {
		req  any
		want time.Duration
		no   bool
	}{
		{req: &api.StatusRequest{}, want: time.Minute},
		{req: &api.RunPodSandboxRequest{}, want: 2 * time.Minute},
		{req: &api.StopContainerRequest{Timeout: 30}, want: 90 * time.Second},
		{req: &api.ExecSyncRequest{Timeout: 5}, want: 65 * time.Second},
		{req: &api.ExecSyncRequest{}, no: true},
		{req: &api.PullImageRequest{}, no: true},
	} {
		if got, bounded := c.timeoutOf("x", tt.req); bounded == tt.no || bounded && got != tt.want {
			t.Errorf("%T: %s, %v", tt.req, got, bounded)
		}
	}
}

// TestPause checks the interval between two comparisons with the runtime.
func TestPause(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		f    follower
		want time.Duration
	}{
		{follower{evented: true, changed: now, live: true}, compareSeldom},
		{follower{changed: now}, compareSoon},
		{follower{changed: now.Add(-2 * recentPeriod), live: true}, compareLater},
		{follower{changed: now.Add(-2 * recentPeriod)}, compareSeldom},
	} {
		if got := tt.f.nextDelay(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.f, got, tt.want)
		}
	}
}

// TestLocal checks that a streaming URL is accepted only if it is on this machine.
func TestLocal(t *testing.T) {
	for target, ok := range map[string]bool{
		"http://127.0.0.1:4000/exec/x": true, "http://[::1]:4000/exec/x": true, "https://localhost:1/attach/x": true, "http://127.9.9.9:1/": true,
		"": false, "http://192.0.2.1:80/exec/x": false, "http://example.com:80/": false, "http://127.0.0.1/exec": false, "ftp://127.0.0.1:1/": false,
		"http://user:pass@127.0.0.1:1/": false, "http://127.0.0.1.example.com:1/": false, "unix:///run/x": false, "http://169.254.169.254:80/latest": false,
	} {
		if _, err := parseLocalURL(target); (err == nil) != ok {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// hostile starts a server that sends the same response on each connection. It returns the URL of the server.
func hostile(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.Read(make([]byte, 4096))
				io.WriteString(c, answer)
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/x"
}

func TestHostileStreams(t *testing.T) {
	for _, answer := range []string{
		"", "nonsense\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1:80/\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno!",
		"HTTP/1.1 101 Switching Protocols\r\nX-Stream-Protocol-Version: v9\r\n\r\n", "HTTP/1.1 101 X\r\n" + strings.Repeat("A: b\r\n", 1<<20),
	} {
		if c, err := dialStream(t.Context(), hostile(t, answer), "v4.channel.k8s.io"); err == nil {
			c.Close()
			t.Errorf("%.60q was accepted", answer)
		}
	}
}

func FuzzOutcome(f *testing.F) {
	for _, s := range []string{"", `{"status":"Success"}`, `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`, "x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, said []byte) { decodeStatus(said) })
}

func TestOutcome(t *testing.T) {
	var exit cri.ExitError
	if err := decodeStatus([]byte(
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`)); !errors.As(err,
		&exit) || exit.Code != 3 {
		t.Error(err)
	}
	if err := decodeStatus([]byte(`{"status":"Success"}`)); err != nil {
		t.Error(err)
	}
	if err := decodeStatus(nil); !errors.Is(err, errLost) {
		t.Errorf("no status: %v", err)
	}
}
