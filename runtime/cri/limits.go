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

	"github.com/islet-edge/islet/weight/codec"
)

// What the tools at a socket may use together. A thousand connections that wait cost
// some 30 MiB. One program that is broken, or means harm, reaches the rest: 64 KiB for
// each call that has not been let in (HTTP/2 lets no client send more unasked), a whole
// message for each of those that are being received, and the budget of those in work.
const (
	maxCalls     = 256
	maxReceiving = 4
	maxInWork    = 16 << 20         // bytes of memory of requests
	maxRequest   = 4 << 20          // bytes of one
	maxMemory    = 6 << 20          // bytes of memory of one, once it is decoded
	maxGrowth    = 64               // how many times as large a request is at most once it is decoded
	receiveTime  = 30 * time.Second // for one
	perClient    = 128              // calls at a time on one connection
	idleClient   = 10 * time.Minute // a client of gRPC's connects again by itself
	greetTime    = 10 * time.Second // for the first words of a connection
)

// limits bounds the calls of a server:
//
//	headers --admit--> waits --TagRPC--> is received --InPayload--> in work (charge) --> answered
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
		grpc.ForceServerCodecV2(codec.New(maxMemory)), grpc.InTapHandle(l.admit), grpc.StatsHandler(l),
	}
}

// A receipt is a call until its request is here.
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

// HandleRPC gives the place back.
func (l *limits) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, here := s.(*stats.InPayload); !here {
		return
	}
	if r, ok := ctx.Value(receiptKey{}).(*receipt); ok && r.here != nil {
		r.here()
	}
}

// TagConn is of no interest here.
func (l *limits) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is of no interest here.
func (l *limits) HandleConn(context.Context, stats.ConnStats) {}

// charge counts a request that is in work.
func (l *limits) charge(req any) (done func(), err error) {
	m, ok := req.(proto.Message)
	if !ok {
		return func() {}, nil
	}
	size := min(maxGrowth*int64(proto.Size(m)), maxMemory)
	if !l.inWork.TryAcquire(size) {
		return nil, status.Errorf(codes.ResourceExhausted, "requests that may take %d MiB of memory are in work: try again", maxInWork>>20)
	}
	return func() { l.inWork.Release(size) }, nil
}
