package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/islet-edge/islet/internal/socket"
)

// Limits for clients.
const (
	maxRequest     = 64 << 10 // bytes
	maxHeaders     = 4 << 10
	maxConnections = 32
	perConnection  = 8 // concurrent calls
	perSecond      = 100
	callBurst      = 10 // perSecond and burst are the limits of a kubelet's pod resources API
	greetTime      = 10 * time.Second
	idleTime       = 5 * time.Minute
	flowWindow     = 64 << 10 // flow control window; gRPC's minimum
	buffer         = 4 << 10
)

// A Server listens at a socket.
type Server struct {
	path     string
	listener *socket.Listener
}

// Listen creates the socket and its directory. It replaces an existing socket.
func Listen(path string, sockets *socket.Sockets) (*Server, error) {
	l, err := sockets.Listen(path)
	if err != nil {
		return nil, err
	}
	return &Server{path, l}, nil
}

// Close removes the socket. Run also removes the socket when it ends.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

// Run serves gRPC services until ctx ends. It calls register to add the services to the gRPC server.
func (s *Server) Run(ctx context.Context, register func(*grpc.Server)) error {
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	first, err := s.listener.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("listen at %s: %w", s.path, err)
	}
	limit := rate.NewLimiter(perSecond, callBurst)
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(perConnection), grpc.ConnectionTimeout(greetTime),
		grpc.InitialWindowSize(flowWindow), grpc.InitialConnWindowSize(flowWindow),
		grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer), grpc.SharedWriteBuffer(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime}),
		grpc.UnaryInterceptor(limitCalls(limit)), grpc.StreamInterceptor(limitStreams(limit)))
	register(g)
	defer g.Stop() // needed if Serve returns before ctx ends
	defer context.AfterFunc(ctx, g.Stop)()
	if err := g.Serve(newListener(s.listener, first)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve at %s: %w", s.path, err)
	}
	return nil
}

// limitCalls rejects calls that exceed the limit.
func limitCalls(limit *rate.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, errTooMany()
		}
		return handle(ctx, req)
	}
}

// limitStreams is like limitCalls, but for streaming calls.
func limitStreams(limit *rate.Limiter) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if !limit.Allow() {
			return errTooMany()
		}
		return handle(srv, s)
	}
}

func errTooMany() error {
	return status.Errorf(codes.ResourceExhausted, "more than %d calls a second: try again", perSecond)
}

// A listener limits the number of open connections. Its first Accept returns a connection that has already been
// accepted.
type listener struct {
	net.Listener
	first  chan net.Conn // capacity 1
	slots  chan struct{}
	closed chan struct{}
	close  sync.Once
}

func newListener(l net.Listener, first net.Conn) *listener {
	out := &listener{Listener: l, first: make(chan net.Conn, 1), slots: make(chan struct{}, maxConnections),
		closed: make(chan struct{})}
	out.first <- first
	return out
}

// Accept waits until fewer than maxConnections connections are open, and then accepts one. The
// first call returns the connection that has already been accepted.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	free := sync.OnceFunc(func() { <-l.slots })
	select {
	case c := <-l.first:
		return &placedConn{c, free}, nil
	default:
	}
	c, err := l.Listener.Accept()
	if err != nil {
		free()
		return nil, err
	}
	return &placedConn{c, free}, nil
}

func (l *listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A placedConn occupies one of the places of the listener until it is closed.
type placedConn struct {
	net.Conn
	release func()
}

func (c *placedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
