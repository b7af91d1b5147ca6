package cri

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is what the kubelet and CRI runtimes agree on, in bytes.
const maxMessage = 16 << 20

// stopWait bounds waiting for calls that go on when Serve ends.
const stopWait = 5 * time.Second

// Serve offers r and images as CRI services on l until ctx ends; then it returns
// nil. Exec, Attach and PortForward answer as r does. The calls are those of tools:
// see ByTool, and limits for how much they may use.
func Serve(ctx context.Context, l net.Listener, r Runtime, images Images) error {
	limits := newLimits()
	s := grpc.NewServer(append(limits.options(), grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		done, err := limits.charge(ctx, req)
		if err != nil {
			return nil, err
		}
		defer done()
		res, err := handle(ByTool(ctx), req)
		return res, errgrpc.ToGRPC(err)
	}))...)
	api.RegisterRuntimeServiceServer(s, runtimeServer{Runtime: r, events: &eventStreams{}})
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
		events *eventStreams
	}
	imageServer struct {
		Images
		otherImageCalls
	}
)
