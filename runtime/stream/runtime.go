package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/islet-edge/islet/internal/door"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/frames"
	"github.com/islet-edge/islet/runtime/stream/linger"
	"github.com/islet-edge/islet/runtime/stream/tunnel"
)

const (
	// idleTimeout is how long a stream may have no traffic, like a kubelet's
	// streamingConnectionIdleTimeout.
	idleTimeout = 4 * time.Hour
	// headerTimeout is how long a client may take to send its request's headers.
	headerTimeout = 30 * time.Second
	// maxWaiting is the maximum number of connections without a stream. maxStreams is the maximum
	// number of connections with one.
	maxWaiting = 64
	maxHeader  = 64 << 10 // size of a request's headers, in bytes
	maxStreams = 1024
	// goodbye is how long clients have to receive the end of their streams when the agent stops.
	goodbye = time.Second
)

// Runtime is a cri.Runtime whose Exec, Attach and PortForward return URLs. All other calls go to
// the wrapped runtime.
type Runtime struct {
	cri.Runtime
	log    *slog.Logger
	asked  chan chan error // requests to start the server; each channel receives the result
	ready  chan struct{}   // closed once server is set
	server streaming.Server
}

var (
	_ cri.Runtime = (*Runtime)(nil)
	_ cri.Events  = (*Runtime)(nil)
)

// Wrap returns a Runtime around rt, which must implement cri.Streamer. The URLs are served while
// Run runs.
func Wrap(rt cri.Runtime, log *slog.Logger) (*Runtime, error) {
	if _, ok := rt.(cri.Streamer); !ok {
		return nil, errors.New("wrap runtime: it does not implement cri.Streamer")
	}
	return &Runtime{Runtime: rt, log: log, asked: make(chan chan error), ready: make(chan struct{})}, nil
}

// Exec returns a URL at which a command runs in a container. It fails if the container is not
// running.
func (r *Runtime) Exec(ctx context.Context, req *api.ExecRequest) (*api.ExecResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, fmt.Errorf("exec in container %s: no command: %w", req.GetContainerId(), errdefs.ErrInvalidArgument)
	}
	if err := r.checkRunning(ctx, req.GetContainerId()); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if err := r.awaitListening(ctx); err != nil {
		return nil, err
	}
	return r.server.GetExec(req)
}

// Attach returns a URL for the streams of a container's process. It fails if the container is not
// running.
func (r *Runtime) Attach(ctx context.Context, req *api.AttachRequest) (*api.AttachResponse, error) {
	if err := r.checkRunning(ctx, req.GetContainerId()); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if err := r.awaitListening(ctx); err != nil {
		return nil, err
	}
	return r.server.GetAttach(req)
}

// PortForward returns a URL for ports of a sandbox. It fails if the sandbox is not ready.
func (r *Runtime) PortForward(ctx context.Context, req *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	st, err := r.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: req.GetPodSandboxId()})
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	if st.GetStatus().GetState() != api.PodSandboxState_SANDBOX_READY {
		return nil, fmt.Errorf("port-forward: sandbox %s is not ready: %w", st.GetStatus().GetId(), errdefs.ErrFailedPrecondition)
	}
	if err := r.awaitListening(ctx); err != nil {
		return nil, err
	}
	return r.server.GetPortForward(req)
}

// checkRunning returns an error unless the container is running. If Exec or Attach fails, the client
// gets an error with a code. At the URL it could get only a text.
func (r *Runtime) checkRunning(ctx context.Context, id string) error {
	st, err := r.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return err
	}
	if st.GetStatus().GetState() != api.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("container %s is not running: %w", st.GetStatus().GetId(), errdefs.ErrFailedPrecondition)
	}
	return nil
}

// ContainerEvents calls the method of the wrapped runtime.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	if e, ok := r.Runtime.(cri.Events); ok {
		return e.ContainerEvents(ctx, handle)
	}
	return fmt.Errorf("container events: %w", errdefs.ErrNotImplemented)
}

// Subscribe calls the method of the wrapped runtime. If that runtime has no events, handle is never
// called.
func (r *Runtime) Subscribe(handle func(*api.ContainerEventResponse)) (end func()) {
	if e, ok := r.Runtime.(cri.Subscriber); ok {
		return e.Subscribe(handle)
	}
	return func() {}
}

// awaitListening makes Run start the server. It waits until the server is listening.
func (r *Runtime) awaitListening(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case <-r.ready:
		return nil
	case r.asked <- reply:
		return <-reply
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run serves the URLs until ctx ends. It returns when every stream has ended.
func (r *Runtime) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case reply := <-r.asked:
			l, err := r.listen()
			reply <- err
			if err == nil {
				return r.serve(ctx, l)
			}
		}
	}
}

// listen creates the server with an address on loopback.
func (r *Runtime) listen() (*listener, error) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	c := streaming.DefaultConfig
	c.StreamIdleTimeout = idleTimeout
	c.BaseURL = &url.URL{Scheme: "http", Host: inner.Addr().String()}
	s, err := streaming.NewServer(c, streams{r.Runtime.(cri.Streamer)})
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	r.server = s
	close(r.ready)
	return &listener{Listener: inner, conns: map[net.Conn]struct{}{}}, nil
}

func (r *Runtime) serve(ctx context.Context, l *listener) error {
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if l.enter() {
				defer l.going.Done()
				if tunnel.Is(req) {
					tunnel.Serve(w, req, http.HandlerFunc(r.serveBounded))
					return
				}
				r.serveBounded(w, req)
			}
		}),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, l.stopAccepting)
	defer stop()
	door.Watch(srv)
	placed := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx, cancel := context.WithCancel(placed(ctx, c))
		unwrap(c).gone = cancel
		return ctx
	}
	told := srv.ConnState
	srv.ConnState = func(c net.Conn, is http.ConnState) {
		told(c, is)
		if is == http.StateHijacked {
			unwrap(c).stream.Store(true)
		}
	}
	err := srv.Serve(door.Listen(l, door.Config{
		What: "the streams of the CRI socket", Most: maxWaiting, Sessions: maxStreams, Log: r.log,
	}))
	l.stopAccepting()
	// A command ends with ctx, and its client receives a message about this. A forwarded port ends
	// only with its connection.
	late := time.AfterFunc(goodbye, l.closeConns)
	l.going.Wait()
	late.Stop()
	l.closeConns()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("serve streams: %w", err)
}

// serveBounded serves a stream. It limits the control frames of SPDY sessions.
func (r *Runtime) serveBounded(w http.ResponseWriter, req *http.Request) {
	if !wsstream.IsWebSocketRequest(req) {
		w = frames.Bound(w)
	}
	r.server.ServeHTTP(w, req)
}

// A listener tracks the connections that it accepted, because streams hijack them from the HTTP
// server.
type listener struct {
	net.Listener
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	going  sync.WaitGroup // requests in progress
}

// enter counts a request. It returns false if the listener is closed.
func (l *listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.going.Add(1)
	}
	return !l.closed
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	k := &conn{Conn: c, from: l}
	l.conns[k] = struct{}{}
	return k, nil
}

// stopAccepting closes the listener. Existing connections stay open.
func (l *listener) stopAccepting() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Listener.Close()
}

// closeConns closes every connection.
func (l *listener) closeConns() {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		c.(*conn).Conn.Close()
	}
}

// unwrap returns the conn that package door has wrapped.
func unwrap(c net.Conn) *conn { return c.(interface{ NetConn() net.Conn }).NetConn().(*conn) }

// A conn cancels the context of its request when its peer has gone. The library notices this only
// when it sends something.
type conn struct {
	net.Conn
	from   *listener
	gone   context.CancelFunc // cancels the request's context; nil before the first request
	stream atomic.Bool        // whether a stream has hijacked the connection
}

// Read cancels the context when the connection ends.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && c.gone != nil {
		c.gone()
	}
	return n, err
}

// Close closes the connection. If it belongs to a stream, Close waits until the peer has received
// everything. It then cancels the context, because no goroutine reads from the connection any more
// and would notice its end.
func (c *conn) Close() error {
	var err error
	if c.stream.Load() {
		err = linger.Close(context.Background(), c.Conn)
	} else {
		err = c.Conn.Close()
	}
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	if c.gone != nil {
		c.gone()
	}
	return err
}
