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

// What the tools at a socket may use together. A thousand idle connections cost some 30 MiB.
// A program that is broken, or hostile, reaches the rest: 64 KiB for each call, either unread
// (HTTP/2 lets no client send more unasked) or decoded; a whole message and what it is decoded
// into for each call that is received; and maxInWork for large requests.
const (
	maxCalls     = 256
	maxReceiving = 4
	maxInWork    = 16 << 20         // bytes of large requests, with their memory
	ordinary     = 64 << 10         // bytes of a request, with its memory, that counts as a call only
	maxRequest   = 4 << 20          // bytes of one
	maxMemory    = 6 << 20          // bytes of memory of one, once it is decoded
	receiveTime  = 30 * time.Second // for one, until it is in work
	perClient    = 128              // calls at a time on one connection
	idleClient   = 10 * time.Minute // a client of gRPC's connects again by itself
	greetTime    = 10 * time.Second // for the first words of a connection
)

// limits bounds the calls of a server:
//
//	headers --admit--> waits --TagRPC--> is received --charge--> in work --> answered
//
// A large request waits in charge for its share of maxInWork, in the order of arrival, and keeps
// its place among the maxReceiving meanwhile.
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
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(perClient), grpc.MaxHeaderListSize(8 << 10),
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(128 << 10), // fixed: neither grows
		grpc.ReadBufferSize(4 << 10), grpc.WriteBufferSize(4 << 10), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(greetTime), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleClient}),
		grpc.ForceServerCodecV2(codec.New(maxMemory)), grpc.InTapHandle(l.admit), grpc.StatsHandler(l), grpc.StreamInterceptor(l.stream),
	}
}

// A receipt is a call until its request is in work.
type receipt struct {
	cancel context.CancelCauseFunc
	here   func() // gives back the place in which it is received; nil: it has none
}

type receiptKey struct{}

// admit counts a call until it ends. It is called with a lock of its connection's held,
// and so does not wait.
func (l *limits) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if l.calls.Add(1) > maxCalls {
		l.calls.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d calls at a time: try again", maxCalls)
	}
	context.AfterFunc(ctx, func() { l.calls.Add(-1) })
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, receiptKey{}, &receipt{cancel: cancel}), nil
}

// TagRPC waits for a place in which a call's request is received.
func (l *limits) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	r, ok := ctx.Value(receiptKey{}).(*receipt)
	if !ok || l.receiving.Acquire(ctx, 1) != nil {
		return ctx // it has ended
	}
	late := time.AfterFunc(receiveTime, func() { r.cancel(context.DeadlineExceeded) })
	r.here = sync.OnceFunc(func() {
		late.Stop()
		l.receiving.Release(1)
	})
	context.AfterFunc(ctx, r.here) // a call of an unknown method receives nothing
	return ctx
}

// HandleRPC is of no interest here.
func (l *limits) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn is of no interest here.
func (l *limits) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is of no interest here.
func (l *limits) HandleConn(context.Context, stats.ConnStats) {}

// charge waits until a request that was received may be in work. The caller calls done when its
// answer is there. A request that waits for longer than receiveTime is refused.
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
		return nil, status.Errorf(codes.ResourceExhausted, "requests that take %d MiB of memory are in work: try again", maxInWork>>20)
	}
	return func() { l.inWork.Release(size) }, nil
}

// stream charges the request of a call with a stream of answers.
func (l *limits) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	c := &charged{s, l, func() {}}
	defer func() { c.done() }()
	return handle(srv, c)
}

// A charged stream has one request.
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
