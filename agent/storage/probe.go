package storage

import (
	"context"
	"fmt"
)

// A Prober is a Driver whose volumes may stop to answer, as those of a server do. Probe
// returns once the volume answers; it may hang.
type Prober interface{ Probe(path string) error }

// A probing is a call of Probe.
type probing struct {
	done chan struct{} // closed when err is there
	err  error
}

// probe lets nobody go on who would hang for ever on what a server does not answer. One
// call for each place is under way at most; it is in nobody's way who unmounts the volume,
// which ends it.
func (k *Keeper) probe(ctx context.Context, v Volume, d Driver, path string) error {
	asks, ok := d.(Prober)
	if !ok {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	k.mu.Lock()
	p := k.probes[path]
	if p == nil {
		p = &probing{done: make(chan struct{})}
		k.probes[path] = p
		go func() {
			p.err = guarded(ctx, func(context.Context) error { return asks.Probe(path) })
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
