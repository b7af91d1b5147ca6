package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// An echo is a runtime for tests. Its container c implements the commands exit, cat, head, size and wait. Its port 80 returns the first
// five bytes that it receives.
type echo struct {
	cri.Runtime
	waiting chan struct{} // receives a value when the command wait is running
}

func (echo) ContainerStatus(_ context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	state, ok := map[string]api.ContainerState{
		"c": api.ContainerState_CONTAINER_RUNNING, "flood": api.ContainerState_CONTAINER_RUNNING, "removed": api.ContainerState_CONTAINER_RUNNING,
		"created": api.ContainerState_CONTAINER_CREATED, "ended": api.ContainerState_CONTAINER_EXITED,
	}[req.GetContainerId()]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{Id: req.GetContainerId(), State: state}}, nil
}

func (echo) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	state, ok := map[string]api.PodSandboxState{"s": api.PodSandboxState_SANDBOX_READY, "stopped": api.PodSandboxState_SANDBOX_NOTREADY}[req.GetPodSandboxId()]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return &api.PodSandboxStatusResponse{Status: &api.PodSandboxStatus{Id: req.GetPodSandboxId(), State: state}}, nil
}

// TestNoStreams checks requests for a missing container, a container that is not running, and a sandbox that is not ready. The runtime
// returns an error with the right code and no URL.
func TestNoStreams(t *testing.T) {
	r, _, _ := start(t)
	for id, is := range map[string]func(error) bool{"nothing": errdefs.IsNotFound, "created": errdefs.IsFailedPrecondition, "ended": errdefs.IsFailedPrecondition} {
		if _, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: id, Cmd: []string{"cat"}, Stdout: true}); !is(err) {
			t.Errorf("exec, %s: %v", id, err)
		}
		if _, err := r.Attach(t.Context(), &api.AttachRequest{ContainerId: id, Stdout: true}); !is(err) {
			t.Errorf("attach, %s: %v", id, err)
		}
	}
	for id, is := range map[string]func(error) bool{"nothing": errdefs.IsNotFound, "stopped": errdefs.IsFailedPrecondition} {
		if _, err := r.PortForward(t.Context(), &api.PortForwardRequest{PodSandboxId: id, Port: []int32{80}}); !is(err) {
			t.Errorf("port-forward, %s: %v", id, err)
		}
	}
	for what, req := range map[string]*api.ExecRequest{
		"no command": {ContainerId: "c", Stdout: true}, "no stream": {ContainerId: "c", Cmd: []string{"cat"}},
		"a terminal with stderr": {ContainerId: "c", Cmd: []string{"cat"}, Stdout: true, Stderr: true, Tty: true},
	} {
		if _, err := r.Exec(t.Context(), req); status.Code(errgrpc.ToGRPC(err)) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func (e echo) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	if id != "c" {
		return errors.New("no such container")
	}
	what := "attached"
	if len(o.Command) > 0 {
		what = o.Command[0]
	}
	switch what {
	case "cat":
		_, err := io.Copy(o.Stdout, o.Stdin)
		return err
	case "head": // for clients that cannot close stdin
		_, err := io.CopyN(o.Stdout, o.Stdin, 1000)
		return err
	case "size":
		s := <-o.Resize
		fmt.Fprintf(o.Stdout, "%dx%d", s.Width, s.Height)
		return nil
	case "exit":
		fmt.Fprint(o.Stdout, "out")
		fmt.Fprint(o.Stderr, "err")
		return cri.ExitError{Code: 7}
	case "wait":
		e.waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	fmt.Fprint(o.Stdout, what)
	return nil
}

func (e echo) Forward(_ context.Context, id string, port int32, s io.ReadWriteCloser) error {
	if port != 80 {
		return errors.New("connection refused")
	}
	_, err := io.Copy(s, io.LimitReader(s, 5))
	return err
}

// start runs a Runtime until stop is called or the test ends.
func start(t *testing.T) (r *Runtime, e echo, stop func()) {
	t.Helper()
	e = echo{waiting: make(chan struct{}, 1)}
	r, err := Wrap(e, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = func() {
		cancel()
		select {
		case err := <-ended:
			ended <- err
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("Run did not end")
		}
	}
	t.Cleanup(stop)
	return r, e, stop
}

// This map contains a client of exec and attach for each protocol.
var clients = map[string]func(u *url.URL) (remotecommand.Executor, error){
	"spdy": func(u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
	},
	"websocket": func(u *url.URL) (remotecommand.Executor, error) {
		// Only kubectl and the API server use newer versions of the protocol.
		return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: u.Host}, http.MethodGet, u.String(), "v4.channel.k8s.io")
	},
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

type oneSize struct{ sent bool }

func (o *oneSize) Next() *remotecommand.TerminalSize {
	if o.sent {
		return nil
	}
	o.sent = true
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

func TestExec(t *testing.T) {
	r, _, _ := start(t)
	for name, dial := range clients {
		run := func(t *testing.T, req *api.ExecRequest, o remotecommand.StreamOptions) error {
			t.Helper()
			resp, err := r.Exec(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			x, err := dial(parse(t, resp.Url))
			if err != nil {
				t.Fatal(err)
			}
			return x.StreamWithContext(t.Context(), o)
		}
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			err := run(t, &api.ExecRequest{ContainerId: "c", Cmd: []string{"exit"}, Stdout: true, Stderr: true}, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
			var code exec.CodeExitError
			if !errors.As(err, &code) || code.Code != 7 || out.String() != "out" || errs.String() != "err" {
				t.Errorf("exit: %v, %q, %q", err, &out, &errs)
			}
			out.Reset()
			long, cmd := strings.Repeat("0123456789", 100_000), "cat"
			if name == "websocket" {
				long, cmd = long[:1000], "head"
			}
			err = run(t, &api.ExecRequest{ContainerId: "c", Cmd: []string{cmd}, Stdin: true, Stdout: true}, remotecommand.StreamOptions{Stdin: strings.NewReader(long), Stdout: &out})
			if err != nil || out.String() != long {
				t.Errorf("%s: %v, %d bytes of %d", cmd, err, out.Len(), len(long))
			}
			out.Reset()
			err = run(t, &api.ExecRequest{ContainerId: "c", Cmd: []string{"size"}, Stdout: true, Tty: true}, remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: &oneSize{}})
			if err != nil || out.String() != "80x24" {
				t.Errorf("size: %v, %q", err, &out)
			}
			err = run(t, &api.ExecRequest{ContainerId: "removed", Cmd: []string{"cat"}, Stdout: true}, remotecommand.StreamOptions{Stdout: io.Discard})
			if err == nil || !strings.Contains(err.Error(), "no such container") {
				t.Errorf("other container: %v", err)
			}
			resp, err := r.Attach(t.Context(), &api.AttachRequest{ContainerId: "c", Stdout: true})
			if err != nil {
				t.Fatal(err)
			}
			x, err := dial(parse(t, resp.Url))
			if err != nil {
				t.Fatal(err)
			}
			out.Reset()
			if err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "attached" {
				t.Errorf("attach: %v, %q", err, &out)
			}
			// A URL can be used only once.
			if err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil {
				t.Error("a token worked twice")
			}
		})
	}
	if _, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: "c", Stdout: true}); err == nil {
		t.Error("exec without a command succeeded")
	}
}

// This map contains a client of port-forward for each protocol.
var dialers = map[string]func(u *url.URL) (httpstream.Dialer, error){
	"spdy": func(u *url.URL) (httpstream.Dialer, error) {
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
		if err != nil {
			return nil, err
		}
		return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), nil
	},
	"tunnel": func(u *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialer(u, &rest.Config{Host: u.Host})
	},
}

func TestPortForward(t *testing.T) {
	for name, dialer := range dialers {
		t.Run(name, func(t *testing.T) { testPortForward(t, dialer) })
	}
}

func testPortForward(t *testing.T, dialer func(*url.URL) (httpstream.Dialer, error)) {
	r, _, _ := start(t)
	resp, err := r.PortForward(t.Context(), &api.PortForwardRequest{PodSandboxId: "s", Port: []int32{80}})
	if err != nil {
		t.Fatal(err)
	}
	u := parse(t, resp.Url)
	if ip := u.Hostname(); ip != "127.0.0.1" {
		t.Fatalf("the server listens on %s", ip)
	}
	d, err := dialer(u)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(d, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	// The client sees the end of the port's output.
	if n, err := io.Copy(io.Discard, c); err != nil || n != 0 {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
	close(stop)
	<-ended
	// A URL can be used only once.
	if d, err = dialer(u); err != nil {
		t.Fatal(err)
	}
	if conn, _, err := d.Dial("portforward.k8s.io"); err == nil {
		select {
		case <-conn.CloseChan():
		case <-time.After(2 * time.Minute):
			t.Error("a token worked twice")
		}
		conn.Close()
	}
}

// TestStop checks that all streams end when the context of Run ends. Run returns after that.
func TestStop(t *testing.T) {
	for name, dial := range clients {
		t.Run(name, func(t *testing.T) {
			r, e, stop := start(t)
			resp, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: "c", Cmd: []string{"wait"}, Stdout: true})
			if err != nil {
				t.Fatal(err)
			}
			x, err := dial(parse(t, resp.Url))
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				ended <- x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			}()
			select {
			case <-e.waiting:
			case err := <-ended:
				t.Fatal(err)
			}
			stop()
			if err := <-ended; err == nil {
				t.Error("the stream ended without an error")
			}
		})
	}
}

// TestIdle checks that the server does not listen until the first request.
func TestIdle(t *testing.T) {
	r, _, _ := start(t)
	select {
	case <-r.ready:
		t.Error("the server is listening without a request")
	default:
	}
}

// TestSilentClients checks that other clients can open a stream while many connections send no request.
func TestSilentClients(t *testing.T) {
	r, _, _ := start(t)
	resp, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: "c", Cmd: []string{"exit"}, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	u := parse(t, resp.GetUrl())
	for range 3 * maxWaiting {
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	executor, err := clients["spdy"](u)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != "out" || errs.String() != "err" {
		t.Errorf("%v: %q %q", err, &out, &errs)
	}
}

// TestResetInput checks that the process of exec and attach gets an error, and not the end of its input, if the client resets the stream.
func TestResetInput(t *testing.T) {
	r, _, _ := start(t)
	for ended, want := range map[bool]string{true: `"Success"`, false: `"Failure"`} {
		u, err := r.Exec(t.Context(), &api.ExecRequest{ContainerId: "c", Cmd: []string{"cat"}, Stdin: true, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		dialer, err := dialers["spdy"](parse(t, u.Url))
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := dialer.Dial("v4.channel.k8s.io")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		streams := map[string]httpstream.Stream{}
		for _, name := range []string{"error", "stdin", "stdout"} {
			if streams[name], err = conn.CreateStream(http.Header{"StreamType": {name}}); err != nil {
				t.Fatal(err)
			}
		}
		io.WriteString(streams["stdin"], "input")
		io.ReadFull(streams["stdout"], make([]byte, len("input"))) // the process has read it
		if ended {
			streams["stdin"].Close()
		} else {
			streams["stdin"].Reset()
		}
		if status, err := io.ReadAll(streams["error"]); err != nil || !strings.Contains(string(status), want) {
			t.Errorf("the client ended its input: %v; the status is %s, %v", ended, status, err)
		}
	}
}

// TestContextEnds checks that the context of a request is cancelled when the server closes the connection of the request.
func TestContextEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &conn{Conn: ours, from: &listener{conns: map[net.Conn]struct{}{}}, cancel: cancel}
	if err := c.Close(); err != nil || ctx.Err() == nil {
		t.Errorf("got %v, the context ended with %v", err, ctx.Err())
	}
}

// TestUnreadInput checks that the context of a request ends when the peer disconnects, although nobody reads its data.
func TestUnreadInput(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &conn{Conn: ours, ctx: ctx, cancel: cancel}
	ended := make(chan struct{})
	go func() { defer close(ended); c.watchHangUp() }()
	if _, err := theirs.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	<-ended
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
}
