package storage

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A Prober is a Driver that knows better than mounts.Answers whether a volume does. Probe returns
// once it does; it may hang.
type Prober interface{ Probe(path string) error }

// left are the calls that Leave has made and that have not returned.
var left singleflight.Group

// Leave calls what may wait for a server that is gone, and leaves it behind when ctx ends: it
// must do no harm later. What is called for, and of which place or volume, tells calls apart; who
// comes while such a call has not returned waits for that one, so that the attempts of days hold one
// thread of the agent, of which it may have ten thousand.
func Leave(ctx context.Context, what, of string, call func() error) error {
	ended := left.DoChan(what+" "+of, func() (any, error) {
		return nil, guarded(ctx, func(context.Context) error { return call() })
	})
	select {
	case r := <-ended:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("the volume does not answer: %w", ctx.Err())
	}
}

// A probing is a call of Probe.
type probing struct {
	done chan struct{} // closed when err is there
	err  error
}

// probe lets nobody go on who would hang for ever on what a server does not answer. One
// call for each place is under way at most; it is in nobody's way who unmounts the volume,
// which ends it.
func (k *Keeper) probe(ctx context.Context, v Volume, d Driver, path string) error {
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
		p = &probing{done: make(chan struct{})}
		k.probes[path] = p
		go func() {
			p.err = guarded(ctx, func(context.Context) error { return asks(path) })
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
