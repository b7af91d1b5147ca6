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

// maxMessage is the maximum size of a message in bytes. Kubelets and CRI runtimes use the same
// value.
const maxMessage = 16 << 20

// stopWait is how long Serve waits for running calls after ctx has ended.
const stopWait = 5 * time.Second

// Serve serves a Runtime and its Images as CRI services. It returns nil when ctx has ended. Without Images, it serves no image service.
// Serve limits the number and size of the calls, and marks their contexts with ByTool.
func Serve(ctx context.Context, l net.Listener, r Runtime, images Images) error {
	limits := newLimits()
	unary := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		done, err := limits.waitForMemory(ctx, req)
		if err != nil {
			return nil, err
		}
		defer done()
		res, err := handle(ByTool(ctx), req)
		return res, errgrpc.ToGRPC(err)
	}
	s := grpc.NewServer(append(limits.serverOptions(), grpc.UnaryInterceptor(unary))...)
	api.RegisterRuntimeServiceServer(s, runtimeServer{Runtime: r, events: &eventStreams{ending: ctx.Done()}})
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

// The Unimplemented types are embedded one level deeper than Runtime and Images, so the methods of
// Runtime and Images take precedence.
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
