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

// Limits for all clients of a socket together. A thousand idle connections use about 30 MiB. A
// broken or hostile program can use at most: 64 KiB for each call, either unread in the HTTP/2
// window or decoded; a complete message and its decoded form for each call whose request is being
// received; and maxInWork for large requests.
const (
	maxCalls     = 256
	maxReceiving = 4
	maxInWork    = 16 << 20         // memory of all large requests together, in bytes
	ordinary     = 64 << 10         // in bytes of memory; a larger request counts in maxInWork
	maxRequest   = 4 << 20          // length of one request, in bytes
	maxMemory    = 6 << 20          // memory of one decoded request, in bytes
	receiveTime  = 30 * time.Second // from the begin of receiving a request to the begin of its handling
	perClient    = 128              // concurrent calls on one connection
	idleClient   = 10 * time.Minute // a gRPC client reconnects automatically
	greetTime    = 10 * time.Second // timeout of a connection's handshake
)

// limits applies the limits to the calls of a server:
//
//	headers --admit--> waits --TagRPC--> is received --charge--> is handled --> answered
//
// Large requests wait in charge for their share of maxInWork, in the order of arrival. Until it
// gets its share, it counts towards maxReceiving.
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
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(128 << 10), // a fixed size, which does not grow automatically
		grpc.ReadBufferSize(4 << 10), grpc.WriteBufferSize(4 << 10), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(greetTime), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleClient}),
		grpc.ForceServerCodecV2(codec.New(maxMemory)), grpc.InTapHandle(l.admit), grpc.StatsHandler(l), grpc.StreamInterceptor(l.stream),
	}
}

// A receipt is the state of a call until its request is being handled.
type receipt struct {
	cancel context.CancelCauseFunc
	here   func() // releases receiving; nil if it was not acquired
}

type receiptKey struct{}

// admit counts a call until it ends. It must not block, because gRPC calls it with a lock of the
// connection held.
func (l *limits) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if l.calls.Add(1) > maxCalls {
		l.calls.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d calls at a time: try again", maxCalls)
	}
	context.AfterFunc(ctx, func() { l.calls.Add(-1) })
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, receiptKey{}, &receipt{cancel: cancel}), nil
}

// TagRPC waits until the request of the call may be received.
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

// charge waits until a received request may be handled. The caller must call done when the response
// is complete. A request that waits longer than receiveTime is rejected.
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

// stream applies charge to the request of a streaming call.
func (l *limits) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	c := &chargedStream{s, l, func() {}}
	defer func() { c.done() }()
	return handle(srv, c)
}

// A chargedStream is a stream that receives one request.
type chargedStream struct {
	grpc.ServerStream
	l    *limits
	done func()
}

// RecvMsg implements grpc.ServerStream.
func (c *chargedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	done, err := c.l.charge(c.Context(), m)
	if err == nil {
		c.done = done
	}
	return err
}
