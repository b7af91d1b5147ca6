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

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/inputweight/codec"
)

// Limits for all clients of a socket. A thousand idle connections use about 30 MiB. Clients can
// make the agent use at most: 64 KiB for each of maxCalls calls, maxRequest plus maxMemory for each
// of maxReceiving calls, and maxInWork for large requests.
const (
	maxCalls     = 256
	maxReceiving = 4
	maxInWork    = 16 << 20         // total memory of large requests, in bytes
	ordinarySize = 64 << 10         // memory of a request in bytes; a larger one counts towards maxInWork
	maxRequest   = 4 << 20          // encoded size of a request, in bytes
	maxMemory    = 6 << 20          // memory of a decoded request, in bytes
	receiveTime  = 30 * time.Second // timeout from the start of receiving a request to the start of handling it
	perClient    = 128              // concurrent calls on one connection
	idleClient   = 10 * time.Minute // a connection is closed after this; gRPC clients reconnect
	greetTime    = 10 * time.Second // timeout of the HTTP/2 handshake
)

// callLimits applies the limits to the calls of a server:
//
//	headers --admitCall--> wait --TagRPC--> receive request --waitForMemory--> handle --> respond
//
// Large requests share maxInWork. Each one waits until enough of maxInWork is free, in the order of arrival. A waiting request
// counts towards maxReceiving.
type callLimits struct {
	calls     atomic.Int64
	receiving *semaphore.Weighted
	inWork    *semaphore.Weighted
}

func newLimits() *callLimits {
	return &callLimits{receiving: semaphore.NewWeighted(maxReceiving), inWork: semaphore.NewWeighted(maxInWork)}
}

func (l *callLimits) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(perClient), grpc.MaxHeaderListSize(8 << 10),
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(128 << 10), // fixed: disables automatic growth
		grpc.ReadBufferSize(4 << 10), grpc.WriteBufferSize(4 << 10), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(greetTime), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleClient}),
		grpc.ForceServerCodecV2(codec.New(maxMemory)), grpc.InTapHandle(l.admitCall), grpc.StatsHandler(l),
		grpc.StreamInterceptor(l.interceptStream),
	}
}

// A callState is the state of a call until its request may be processed.
type callState struct {
	cancel           context.CancelCauseFunc
	releaseReceiving func() // releases limits.receiving; nil if it was not acquired
}

type receiptKey struct{}

// admitCall counts the calls in progress and rejects a call beyond maxCalls. It must not block, because
// gRPC holds a lock of the connection.
func (l *callLimits) admitCall(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if l.calls.Add(1) > maxCalls {
		l.calls.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d calls at a time: try again", maxCalls)
	}
	context.AfterFunc(ctx, func() { l.calls.Add(-1) })
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, receiptKey{}, &callState{cancel: cancel}), nil
}

// TagRPC waits until the number of calls whose requests are being received is below maxReceiving.
func (l *callLimits) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	r, ok := ctx.Value(receiptKey{}).(*callState)
	if !ok || l.receiving.Acquire(ctx, 1) != nil {
		return ctx // the call has ended
	}
	timer := time.AfterFunc(receiveTime, func() { r.cancel(context.DeadlineExceeded) })
	r.releaseReceiving = sync.OnceFunc(func() {
		timer.Stop()
		l.receiving.Release(1)
	})
	context.AfterFunc(ctx, r.releaseReceiving) // waitForMemory is not called for an unknown method
	return ctx
}

// HandleRPC implements stats.Handler. It does nothing.
func (l *callLimits) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler. It does nothing.
func (l *callLimits) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler. It does nothing.
func (l *callLimits) HandleConn(context.Context, stats.ConnStats) {}

// waitForMemory waits until enough of maxInWork is free for a large request. If that takes longer than receiveTime, it returns an
// error. The caller must call the returned function when the response is complete.
func (l *callLimits) waitForMemory(ctx context.Context, req any) (done func(), err error) {
	if r, ok := ctx.Value(receiptKey{}).(*callState); ok && r.releaseReceiving != nil {
		defer r.releaseReceiving()
	}
	m, ok := req.(proto.Message)
	if !ok {
		return func() {}, nil
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	memory, err := inputweight.OfProtobuf(data, req, maxMemory)
	if err != nil {
		return nil, err
	}
	size := memory + int64(len(data))
	if size <= ordinarySize {
		return func() {}, nil
	}
	if l.inWork.Acquire(ctx, size) != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "other requests use %d MiB of memory: try again", maxInWork>>20)
	}
	return func() { l.inWork.Release(size) }, nil
}

// interceptStream is an interceptor for streaming calls. The request of such a call must wait like every other request.
func (l *callLimits) interceptStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	c := &chargedStream{s, l, func() {}}
	defer func() { c.done() }()
	return handle(srv, c)
}

// A chargedStream calls waitForMemory for the request that it has received.
type chargedStream struct {
	grpc.ServerStream
	l    *callLimits
	done func()
}

// RecvMsg implements grpc.ServerStream.
func (c *chargedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	done, err := c.l.waitForMemory(c.Context(), m)
	if err == nil {
		c.done = done
	}
	return err
}
