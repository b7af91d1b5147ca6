package cri

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is what the kubelet and CRI runtimes agree on, in bytes.
const maxMessage = 16 << 20

// stopWait bounds waiting for calls that go on when Serve ends.
const stopWait = 5 * time.Second

// Serve offers r and images as CRI services on l until ctx ends; then it returns
// nil. Exec, Attach and PortForward answer as r does.
func Serve(ctx context.Context, l net.Listener, r Runtime, images Images) error {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			res, err := handle(ctx, req)
			return res, errgrpc.ToGRPC(err)
		}))
	api.RegisterRuntimeServiceServer(s, runtimeServer{Runtime: r})
	if images != nil {
		api.RegisterImageServiceServer(s, imageServer{Images: images})
	}
	defer context.AfterFunc(ctx, func() {
		t := time.AfterFunc(stopWait, s.Stop)
		defer t.Stop()
		s.GracefulStop()
	})()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return nil
}

// Calls that Runtime does not have are a level deeper than those it has, so that
// Runtime's win.
type (
	otherRuntimeCalls struct {
		api.UnimplementedRuntimeServiceServer
	}
	otherImageCalls struct {
		api.UnimplementedImageServiceServer
	}
	runtimeServer struct {
		Runtime
		otherRuntimeCalls
	}
	imageServer struct {
		Images
		otherImageCalls
	}
)

// GetContainerEvents streams the events of a runtime that has them. A client that
// does not keep up is cut off, so that it knows to list everything.
func (s runtimeServer) GetContainerEvents(_ *api.GetEventsRequest, to api.RuntimeService_GetContainerEventsServer) error {
	events, ok := s.Runtime.(Events)
	if !ok {
		return errgrpc.ToGRPC(fmt.Errorf("container events: %w", errdefs.ErrNotImplemented))
	}
	ctx, cancel := context.WithCancelCause(to.Context())
	defer cancel(nil)
	queue := make(chan *api.ContainerEventResponse, 256)
	go events.ContainerEvents(ctx, func(e *api.ContainerEventResponse) {
		select {
		case queue <- e:
		default:
			cancel(errdefs.ErrUnavailable)
		}
	})
	for {
		select {
		case e := <-queue:
			if err := to.Send(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return errgrpc.ToGRPC(context.Cause(ctx))
		}
	}
}
