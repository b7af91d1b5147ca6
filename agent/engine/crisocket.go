package engine

import (
	"context"
	"fmt"
	"net"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/socket"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream"
)

// socketClients is the maximum number of connections to the socket. The CRI validation suite opens a connection for
// each test and keeps it open.
const socketClients = 1100

// A Socket serves the runtime to tools that speak CRI, such as crictl.
type Socket struct {
	socket  net.Listener
	runtime *stream.Runtime
	images  cri.Images
}

// OpenSocket listens at the given path. It returns nil if the path is empty. Clients of the socket cannot remove an
// image that a pod needs. The socket calls needed(ctx, ref) to get the name of a pod that needs the image, or "" if
// there is none.
func OpenSocket(
	path string, runtime cri.Runtime, images cri.Images,
	needed func(ctx context.Context, ref string) (string, error), sockets *socket.Sockets,
) (*Socket, error) {
	if path == "" {
		return nil, nil
	}
	rt, err := stream.Wrap(runtime, sockets.Log)
	if err != nil {
		return nil, err
	}
	l, err := sockets.ListenLocal(path, socketClients)
	if err != nil {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	return &Socket{socket: l, runtime: rt, images: toolImages{images, needed}}, nil
}

// Run serves until ctx ends.
func (s *Socket) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return cri.Serve(ctx, s.socket, s.runtime, s.images) })
	g.Go(func() error { return s.runtime.Run(ctx) })
	return g.Wait()
}

// toolImages is the image service for clients of the socket. It rejects the removal of images that pods need to
// restart, for example by `crictl rmi --prune`.
type toolImages struct {
	cri.Images
	needed func(ctx context.Context, ref string) (string, error)
}

// RemoveImage returns ErrFailedPrecondition for an image that a pod needs.
func (i toolImages) RemoveImage(ctx context.Context, req *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	ref := req.GetImage().GetImage()
	pod, err := i.needed(ctx, ref)
	if err != nil {
		return nil, err
	}
	if pod != "" {
		return nil, fmt.Errorf("image %q is needed by %s: delete the pod first, or remove the image with islet images rm --force: %w",
			ref, pod, errdefs.ErrFailedPrecondition)
	}
	return i.Images.RemoveImage(ctx, req)
}
