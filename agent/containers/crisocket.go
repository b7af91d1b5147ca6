package containers

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream"
)

// A Socket serves the runtime to tools that speak CRI, such as crictl.
type Socket struct {
	socket  net.Listener
	runtime *stream.Runtime
	images  cri.Images
}

// OpenSocket listens at path; it returns nil for none.
func OpenSocket(path string, runtime cri.Runtime, images cri.Images, log *slog.Logger) (*Socket, error) {
	if path == "" {
		return nil, nil
	}
	rt, err := stream.Wrap(runtime, log)
	if err != nil {
		return nil, err
	}
	l, err := server.ListenLocal(path, log)
	if err != nil {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	return &Socket{socket: l, runtime: rt, images: images}, nil
}

// Run answers until ctx ends.
func (s *Socket) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return cri.Serve(ctx, s.socket, s.runtime, s.images) })
	g.Go(func() error { return s.runtime.Run(ctx) })
	return g.Wait()
}
