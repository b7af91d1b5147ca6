package remote

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
	"github.com/islet-edge/islet/runtime/stream"
)

// A terminals is a runtime with streams. Its commands end immediately. Its Attach sends each size of the terminal to a channel.
type terminals struct {
	*fake.Runtime
	cri.Streamer
	got chan cri.TerminalSize
}

func (f terminals) Stream(ctx context.Context, _ string, o cri.ExecOptions) error {
	if len(o.Command) > 0 {
		return nil
	}
	select {
	case s := <-o.Resize:
		f.got <- s
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (terminals) ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{State: api.ContainerState_CONTAINER_RUNNING}}, nil
}

// TestSizesAfterTheEnd checks that nothing is received from the Resize channel of a stream that has ended.
func TestSizesAfterTheEnd(t *testing.T) {
	rt, got := fake.New(), make(chan cri.TerminalSize, 1)
	served, err := stream.Wrap(terminals{Runtime: rt, got: got}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go served.Run(t.Context())
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, served, rt)
	r := Streaming{open(t, path)}
	sizes := make(chan cri.TerminalSize)
	in, typing := io.Pipe()
	defer typing.Close()
	for range 10 {
		o := cri.ExecOptions{Command: []string{"true"}, TTY: true, Stdin: in, Stdout: typing, Resize: sizes}
		if err := r.Stream(t.Context(), "c", o); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case sizes <- cri.TerminalSize{Width: 1, Height: 1}:
		t.Fatal("an ended stream received a size")
	default:
	}
	next := make(chan error, 1)
	go func() {
		next <- r.Stream(t.Context(), "c", cri.ExecOptions{TTY: true, Stdin: in, Stdout: typing, Resize: sizes})
	}()
	sizes <- cri.TerminalSize{Width: 91, Height: 33}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if s := <-got; s.Width != 91 || s.Height != 33 {
		t.Errorf("got %v", s)
	}
}

// A lossy is a fake runtime with streaming calls, which a client reaches through proxies. The runtime sends "data", and then cuts the
// connections of the proxies or ends.
type lossy struct {
	*fake.Runtime
	cri.Streamer
	served *stream.Runtime
	cut    bool
	mu     sync.Mutex
	conns  []net.Conn
}

func (*lossy) ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return terminals{}.ContainerStatus(nil, nil)
}

func (*lossy) PodSandboxStatus(context.Context, *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	return &api.PodSandboxStatusResponse{Status: &api.PodSandboxStatus{State: api.PodSandboxState_SANDBOX_READY}}, nil
}

func (f *lossy) Exec(ctx context.Context, req *api.ExecRequest) (*api.ExecResponse, error) {
	resp, err := f.served.Exec(ctx, req)
	return &api.ExecResponse{Url: f.proxy(resp.GetUrl())}, err
}

func (f *lossy) Attach(ctx context.Context, req *api.AttachRequest) (*api.AttachResponse, error) {
	resp, err := f.served.Attach(ctx, req)
	return &api.AttachResponse{Url: f.proxy(resp.GetUrl())}, err
}

func (f *lossy) PortForward(ctx context.Context, req *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	resp, err := f.served.PortForward(ctx, req)
	return &api.PortForwardResponse{Url: f.proxy(resp.GetUrl())}, err
}

// proxy returns the URL of a proxy for one connection.
func (f *lossy) proxy(target string) string {
	u, err := url.Parse(target)
	if err != nil || target == "" {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	to := u.Host
	u.Host = l.Addr().String()
	go func() {
		defer l.Close()
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, client, server)
		f.mu.Unlock()
		go func() { io.Copy(server, client); server.Close() }()
		io.Copy(client, server)
		client.Close()
	}()
	return u.String()
}

func (f *lossy) Stream(ctx context.Context, _ string, o cri.ExecOptions) error {
	_, err := io.WriteString(o.Stdout, "data")
	if f.cut {
		<-ctx.Done() // the test cuts the connection
		return ctx.Err()
	}
	return err
}

func (f *lossy) Forward(_ context.Context, _ string, _ int32, s io.ReadWriteCloser) error {
	_, err := io.WriteString(s, "data")
	if f.cut {
		io.Copy(io.Discard, s) // the test cuts the connection
	}
	return errors.Join(err, s.Close())
}

func (f *lossy) cutConns() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

// A received is the client's end of a stream. It calls then when it has received "data".
type received struct {
	data   string
	then   func()
	closed bool
	ctx    context.Context
}

func (r *received) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, io.EOF
}

func (r *received) Write(b []byte) (int, error) {
	if r.data += string(b); r.data == "data" {
		r.then()
	}
	return len(b), nil
}

func (r *received) Close() error {
	r.closed = true
	return nil
}

// TestLostConnection checks that a lost connection to the runtime is an error of exec, attach and port-forward, and not the end of the
// data.
func TestLostConnection(t *testing.T) {
	for _, cut := range []bool{false, true} {
		f := &lossy{Runtime: fake.New(), cut: cut}
		var err error
		if f.served, err = stream.Wrap(f, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		go f.served.Run(t.Context())
		path := filepath.Join(t.TempDir(), "s")
		serve(t, path, f, f.Runtime)
		r := Streaming{open(t, path)}
		for name, call := range map[string]func(to *received) error{
			"exec": func(to *received) error {
				return r.Stream(t.Context(), "c", cri.ExecOptions{Command: []string{"x"}, Stdout: to})
			},
			"attach": func(to *received) error { return r.Stream(t.Context(), "c", cri.ExecOptions{Stdout: to}) },
			"forward": func(to *received) error {
				return r.Forward(t.Context(), "s", 80, to)
			},
		} {
			to := &received{ctx: t.Context(), then: func() {
				if cut {
					f.cutConns()
				}
			}}
			err := call(to)
			if to.data != "data" || errors.Is(err, errLost) != cut || (err != nil) != cut {
				t.Errorf("%s, cut: %v: %q, %v", name, cut, to.data, err)
			}
			if name == "forward" && to.closed == cut {
				t.Errorf("%s, cut: %v: the client's stream is closed: %v", name, cut, to.closed)
			}
		}
	}
}
