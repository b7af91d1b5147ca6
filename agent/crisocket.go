package agent

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream"
)

// criSocket serves the runtime to tools that speak CRI, such as crictl.
type criSocket struct {
	socket  net.Listener
	runtime *stream.Runtime
	images  cri.Images
}

// openCRISocket returns nil when none is configured.
func (a *agent) openCRISocket() (*criSocket, error) {
	if a.cfg.Edge.CRISocket == "" {
		return nil, nil
	}
	rt, err := stream.Wrap(a.rt.runtime, a.log)
	if err != nil {
		return nil, err
	}
	l, err := server.ListenLocal(a.cfg.Edge.CRISocket, a.log)
	if err != nil {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	return &criSocket{socket: l, runtime: rt, images: a.rt.images}, nil
}

// Run answers until ctx ends.
func (s *criSocket) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return cri.Serve(ctx, s.socket, s.runtime, s.images) })
	g.Go(func() error { return s.runtime.Run(ctx) })
	return g.Wait()
}
