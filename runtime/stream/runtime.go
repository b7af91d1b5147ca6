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

	"github.com/islet-edge/islet/internal/connlimit"
	"github.com/islet-edge/islet/internal/pulse"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/frames"
	"github.com/islet-edge/islet/runtime/stream/linger"
	"github.com/islet-edge/islet/runtime/stream/tunnel"
)

const (
	// idleTimeout is how long a stream may be idle. It equals the default of a kubelet's
	// streamingConnectionIdleTimeout.
	idleTimeout = 4 * time.Hour
	// headerTimeout is the timeout for reading the headers of a request.
	headerTimeout = 30 * time.Second
	// maxWaiting is the maximum number of connections that do not have a stream yet.
	maxWaiting = 64
	maxHeader  = 64 << 10 // maximum size of the headers of a request, in bytes
	maxStreams = 1024     // maximum number of connections with a stream
	// stopTimeout is how long streams may take to end when the agent stops.
	stopTimeout = time.Second
)

// Runtime is a cri.Runtime whose Exec, Attach and PortForward return URLs. It passes all other
// calls to the wrapped runtime.
type Runtime struct {
	cri.Runtime
	log           *slog.Logger
	startRequests chan chan error // requests to start the server; Run sends the result to the received channel
	ready         chan struct{}   // closed once server is set
	server        streaming.Server
}

var (
	_ cri.Runtime = (*Runtime)(nil)
	_ cri.Events  = (*Runtime)(nil)
)

// Wrap returns a Runtime that wraps rt, which must implement cri.Streamer. Run must be running
// while its methods are called.
func Wrap(rt cri.Runtime, log *slog.Logger) (*Runtime, error) {
	if _, ok := rt.(cri.Streamer); !ok {
		return nil, errors.New("wrap runtime: it does not implement cri.Streamer")
	}
	return &Runtime{Runtime: rt, log: log, startRequests: make(chan chan error), ready: make(chan struct{})}, nil
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

// checkRunning returns an error unless the container is running. The check is made before a URL is
// returned, because an error of Exec or Attach has a gRPC code, while an error of the stream is
// only text.
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

// ContainerEvents calls ContainerEvents of the wrapped runtime.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	if e, ok := r.Runtime.(cri.Events); ok {
		return e.ContainerEvents(ctx, handle)
	}
	return fmt.Errorf("container events: %w", errdefs.ErrNotImplemented)
}

// Subscribe calls Subscribe of the wrapped runtime. If that runtime does not implement
// cri.Subscriber, the handler is never called.
func (r *Runtime) Subscribe(handle func(*api.ContainerEventResponse)) (end func()) {
	if e, ok := r.Runtime.(cri.Subscriber); ok {
		return e.Subscribe(handle)
	}
	return func() {}
}

// awaitListening makes Run start the server, if necessary, and waits until it is listening.
func (r *Runtime) awaitListening(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case <-r.ready:
		return nil
	case r.startRequests <- reply:
		return <-reply
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run serves the URLs until ctx ends. It returns when all streams have ended.
func (r *Runtime) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case reply := <-r.startRequests:
			l, err := r.listen()
			reply <- err
			if err == nil {
				return r.serve(ctx, l)
			}
		}
	}
}

// listen creates the server on a free port of 127.0.0.1.
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
			if l.addRequest() {
				defer l.requests.Done()
				if tunnel.IsTunnel(req) {
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
	connlimit.Watch(srv)
	watchContext := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx, cancel := context.WithCancel(watchContext(ctx, c))
		k := unwrapConn(c)
		k.ctx, k.cancel = ctx, cancel
		return ctx
	}
	watchState := srv.ConnState
	srv.ConnState = func(c net.Conn, is http.ConnState) {
		watchState(c, is)
		if is == http.StateHijacked {
			k := unwrapConn(c)
			k.stream.Store(true)
			go k.watchHangUp()
		}
	}
	err := srv.Serve(connlimit.Listen(l, connlimit.Config{
		PortName: "the streams of the CRI socket", MaxConnections: maxWaiting, Sessions: maxStreams, Log: r.log,
	}))
	l.stopAccepting()
	// Exec and attach end with ctx, and their clients receive an error. A port-forward ends only
	// when its connection is closed.
	timeout := time.AfterFunc(stopTimeout, l.closeConns)
	l.requests.Wait()
	timeout.Stop()
	l.closeConns()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("serve streams: %w", err)
}

// resetsKey is the key of *frames.Resets in the context of a request.
type resetsKey struct{}

// serveBounded serves a stream and limits the control frames of SPDY sessions.
func (r *Runtime) serveBounded(w http.ResponseWriter, req *http.Request) {
	if !wsstream.IsWebSocketRequest(req) {
		resets := new(frames.Resets)
		w, req = frames.LimitControlFrames(w, resets), req.WithContext(context.WithValue(req.Context(), resetsKey{}, resets))
	}
	r.server.ServeHTTP(w, req)
}

// A listener tracks accepted connections, because the HTTP server does not close hijacked
// connections.
type listener struct {
	net.Listener
	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	requests sync.WaitGroup // running requests
}

// addRequest registers a request. It returns false if the listener is closed.
func (l *listener) addRequest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.requests.Add(1)
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

// unwrapConn returns the conn inside a connection of package door.
func unwrapConn(c net.Conn) *conn { return c.(interface{ NetConn() net.Conn }).NetConn().(*conn) }

// A conn cancels the context of its request when the peer disconnects. The streaming library
// notices a disconnected peer only when it writes.
type conn struct {
	net.Conn
	from   *listener
	ctx    context.Context    // the request's context; nil before the first request
	cancel context.CancelFunc // cancels ctx
	reads  atomic.Uint64
	stream atomic.Bool // whether a stream has hijacked the connection
}

// Read cancels the context of the request when the connection ends.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && c.cancel != nil {
		c.cancel()
	}
	return n, err
}

// watchHangUp cancels the context of the request when the peer has disconnected, and nobody reads from the connection. It returns when
// the context has ended.
func (c *conn) watchHangUp() {
	if pulse.AwaitHangUp(c.ctx, c.Conn, &c.reads) {
		c.cancel()
	}
}

// Close closes the connection and cancels the context of the request. If the connection has a
// stream, Close first waits until the peer has received all data.
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
	if c.cancel != nil {
		c.cancel()
	}
	return err
}
