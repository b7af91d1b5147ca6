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
	callBurst      = 10
	greetTime      = 10 * time.Second
	idleTime       = 5 * time.Minute
	flowWindow     = 64 << 10 // flow control window; gRPC's minimum
	buffer         = 4 << 10
)

// An Excess tells what happens to a call beyond the rate limit, which applies to all clients together.
type Excess bool

const (
	// Reject rejects the call, as a kubelet's pod resources API does with the same limit.
	Reject Excess = false
	// Delay lets the call wait until its context ends. It is for calls that a client makes once and may not repeat: after a
	// restart of the agent all device plugins register at the same time, and some end if they are rejected.
	Delay Excess = true
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
func (s *Server) Run(ctx context.Context, excess Excess, register func(*grpc.Server)) error {
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	first, err := s.listener.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("listen at %s: %w", s.path, err)
	}
	limit := limiter{rate.NewLimiter(perSecond, callBurst), excess}
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

type limiter struct {
	*rate.Limiter
	excess Excess
}

// admit returns an error if a call beyond the limit is rejected, or if its context ends before it may begin.
func (l limiter) admit(ctx context.Context) error {
	if l.excess == Delay && l.Wait(ctx) == nil || l.excess == Reject && l.Allow() {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "more than %d calls a second: try again", perSecond)
}

// limitCalls applies the limit to calls.
func limitCalls(limit limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := limit.admit(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// limitStreams is like limitCalls, but for streaming calls.
func limitStreams(limit limiter) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := limit.admit(s.Context()); err != nil {
			return err
		}
		return handle(srv, s)
	}
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
