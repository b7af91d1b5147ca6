package storage

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A Prober is a Driver with a better check than mounts.Answers. Probe returns once the volume
// answers; it may block.
type Prober interface{ Probe(path string) error }

// calls are the unfinished calls of CallOrAbandon.
var calls singleflight.Group

// CallOrAbandon runs a call that may block on an unreachable server, and returns without it when
// ctx ends; the call must then be harmless. Calls with the same what and of share one execution. So
// repeated attempts over days occupy one thread of the agent, not one each.
func CallOrAbandon(ctx context.Context, what, of string, call func() error) error {
	ended := calls.DoChan(what+" "+of, func() (any, error) {
		return nil, callRecovering(ctx, func(context.Context) error { return call() })
	})
	select {
	case r := <-ended:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("the volume does not answer: %w", ctx.Err())
	}
}

// A probeCall is a running probe.
type probeCall struct {
	done chan struct{} // closed when err is there
	err  error
}

// probe returns once the volume answers, so that no caller blocks on it later. At most one probe
// for each path is running. It does not block an unmount, which ends it.
func (k *Mounter) probe(ctx context.Context, v Volume, d Driver, path string) error {
	if v.Block {
		return nil
	}
	asks := mounts.Answers
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
