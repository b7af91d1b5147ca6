package storage

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A Prober is a Driver that provides a better check than mounts.CheckResponding. Probe returns when the volume responds. It
// may block.
type Prober interface{ Probe(path string) error }

// calls contains the running calls of CallOrAbandon.
var calls singleflight.Group

// CallOrAbandon makes a call that may block because a server does not respond. If ctx ends first, CallOrAbandon
// returns while the call continues. So the call must do no harm if it ends later. Concurrent calls with the same
// kind and name share one execution, so a pod that is retried for days occupies only one thread of the agent.
func CallOrAbandon(ctx context.Context, kind, name string, call func() error) error {
	ended := calls.DoChan(kind+" "+name, func() (any, error) {
		return nil, callRecovering(ctx, func(context.Context) error { return call() })
	})
	select {
	case r := <-ended:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("the volume does not answer: %w", ctx.Err())
	}
}

// A probeCall is a probe that is running.
type probeCall struct {
	done chan struct{} // closed when err is set
	err  error
}

// probeVolume returns when the volume responds, so that later accesses to the volume do not block. At most one probe is
// running for each path. A probe does not block the unmount of the volume, which ends the probe.
func (k *Mounter) probeVolume(ctx context.Context, v Volume, d Driver, path string) error {
	if v.Block {
		return nil
	}
	asks := mounts.CheckResponding
	if p, ok := d.(Prober); ok {
		asks = p.Probe
	}
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	k.mu.Lock()
	p := k.probes[path]
	if p == nil {
		p = &probeCall{done: make(chan struct{})}
		k.probes[path] = p
		go func() {
			p.err = callRecovering(ctx, func(context.Context) error { return asks(path) })
			k.mu.Lock()
			delete(k.probes, path)
			k.mu.Unlock()
			close(p.done)
		}()
	}
	k.mu.Unlock()
	select {
	case <-p.done:
		if p.err != nil {
			return setUpFailed(v, p.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("volume %q does not answer: %w", v.Name, ctx.Err())
	}
}
