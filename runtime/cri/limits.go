package cri

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/islet-edge/islet/internal/weight"
	"github.com/islet-edge/islet/internal/weight/codec"
)

// Limits for all tools at a socket together. A thousand idle connections use some 30 MiB. A broken
// or hostile program can cause at most: 64 KiB for each call, either unread (the HTTP/2 window) or
// decoded; a complete message and its decoded form for each call that is being received; and
// maxInWork for large requests.
const (
	maxCalls     = 256
	maxReceiving = 4
	maxInWork    = 16 << 20         // bytes of large requests, including their memory
	ordinary     = 64 << 10         // bytes of a request, including its memory, up to which it is not counted in maxInWork
	maxRequest   = 4 << 20          // bytes of one request
	maxMemory    = 6 << 20          // bytes of memory of one decoded request
	receiveTime  = 30 * time.Second // for receiving one request, until it is being handled
	perClient    = 128              // concurrent calls on one connection
	idleClient   = 10 * time.Minute // gRPC clients reconnect automatically
	greetTime    = 10 * time.Second // for the handshake of a connection
)

// limits limits the calls of a server:
//
//	headers --admit--> waits --TagRPC--> is received --charge--> is handled --> answered
//
// In charge, a large request waits for its share of maxInWork, in the order of arrival. Meanwhile
// it counts as one of the maxReceiving.
type limits struct {
	calls     atomic.Int64
	receiving *semaphore.Weighted
	inWork    *semaphore.Weighted
}

func newLimits() *limits {
	return &limits{receiving: semaphore.NewWeighted(maxReceiving), inWork: semaphore.NewWeighted(maxInWork)}
}

func (l *limits) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(perClient), grpc.MaxHeaderListSize(8 << 10),
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(128 << 10), // fixed size: no automatic growth
		grpc.ReadBufferSize(4 << 10), grpc.WriteBufferSize(4 << 10), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(greetTime), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleClient}),
		grpc.ForceServerCodecV2(codec.New(maxMemory)), grpc.InTapHandle(l.admit), grpc.StatsHandler(l), grpc.StreamInterceptor(l.stream),
	}
}

// A receipt is a call until its request is being handled.
type receipt struct {
	cancel context.CancelCauseFunc
	here   func() // releases receiving; nil: not acquired
}

type receiptKey struct{}

// admit counts a call until it ends. gRPC holds a lock of the connection meanwhile, so admit must
// not block.
func (l *limits) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if l.calls.Add(1) > maxCalls {
		l.calls.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d calls at a time: try again", maxCalls)
	}
	context.AfterFunc(ctx, func() { l.calls.Add(-1) })
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, receiptKey{}, &receipt{cancel: cancel}), nil
}

// TagRPC waits for permission to receive a call's request.
func (l *limits) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	r, ok := ctx.Value(receiptKey{}).(*receipt)
	if !ok || l.receiving.Acquire(ctx, 1) != nil {
		return ctx // the call has ended
	}
	late := time.AfterFunc(receiveTime, func() { r.cancel(context.DeadlineExceeded) })
	r.here = sync.OnceFunc(func() {
		late.Stop()
		l.receiving.Release(1)
	})
	context.AfterFunc(ctx, r.here) // a call of an unknown method never receives a request
	return ctx
}

// HandleRPC implements stats.Handler. It does nothing.
func (l *limits) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler. It does nothing.
func (l *limits) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler. It does nothing.
func (l *limits) HandleConn(context.Context, stats.ConnStats) {}

// charge waits until a received request may be handled. The caller calls done when the response is
// complete. A request that waits for longer than receiveTime is rejected.
func (l *limits) charge(ctx context.Context, req any) (done func(), err error) {
	if r, ok := ctx.Value(receiptKey{}).(*receipt); ok && r.here != nil {
		defer r.here()
	}
	m, ok := req.(proto.Message)
	if !ok {
		return func() {}, nil
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	memory, err := weight.OfProtobuf(data, req, maxMemory)
	if err != nil {
		return nil, err
	}
	size := memory + int64(len(data))
	if size <= ordinary {
		return func() {}, nil
	}
	if l.inWork.Acquire(ctx, size) != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "other requests use %d MiB of memory: try again", maxInWork>>20)
	}
	return func() { l.inWork.Release(size) }, nil
}

// stream charges the request of a streaming call.
func (l *limits) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	c := &charged{s, l, func() {}}
	defer func() { c.done() }()
	return handle(srv, c)
}

// A charged is a stream with one request.
type charged struct {
	grpc.ServerStream
	l    *limits
	done func()
}

// RecvMsg implements grpc.ServerStream.
func (c *charged) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	done, err := c.l.charge(c.Context(), m)
	if err == nil {
		c.done = done
	}
	return err
}
