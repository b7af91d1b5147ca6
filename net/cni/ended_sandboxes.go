package cni

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/internal/retry"
)

const (
	// defaultStartTime is the maximum time for which Reconcile waits for CNI plugins.
	defaultStartTime = 3 * time.Second
	// maxDeletes is the maximum number of ended sandboxes for which plugins run the command DEL at the same time.
	maxDeletes = 4
	// firstRetry and lastRetry are the windows of the pauses after a failed DEL.
	firstRetry, lastRetry = 10 * time.Second, 5 * time.Minute
)

// endedSandboxes contains the sandboxes that have ended and still have an attachment, so CNI plugins must remove them: those of a former
// boot, and those whose set-up and removal have failed. No pod and no record of the runtime may refer to such a sandbox any more, so only
// this type remembers it.
type endedSandboxes struct {
	wake chan struct{} // capacity 1; a value makes run remove the new ones

	mu      sync.Mutex
	failed  map[string]bool // by ID: whether a removal has failed
	garbage bool            // the command GC is due
}

func newEndedSandboxes() *endedSandboxes {
	return &endedSandboxes{wake: make(chan struct{}, 1), failed: map[string]bool{}}
}

func (e *endedSandboxes) add(ids ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if _, known := e.failed[id]; !known {
			e.failed[id] = false
		}
	}
	if len(ids) > 0 {
		e.notify()
	}
}

func (e *endedSandboxes) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *endedSandboxes) remove(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failed, id)
}

func (e *endedSandboxes) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.failed[id]
	return known
}

// setFailed records a failed removal. It reports whether it is the first one of this sandbox.
func (e *endedSandboxes) setFailed(id string) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was, known := e.failed[id]
	if known {
		e.failed[id] = true
	}
	return known && !was
}

// list returns the IDs, sorted: all, or only those whose removal has not failed yet.
func (e *endedSandboxes) list(all bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := slices.Sorted(maps.Keys(e.failed))
	return slices.DeleteFunc(ids, func(id string) bool { return !all && e.failed[id] })
}

// setGarbage records whether the command GC is due. It returns the former value.
func (e *endedSandboxes) setGarbage(due bool) (was bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was, e.garbage = e.garbage, due
	return was
}

// markEnded records the attachments of all sandboxes but the live ones.
func (n *Network) markEnded(isLive func(id string) bool) error {
	ids, err := n.plugins.attachments.listIDs()
	n.ended.add(slices.DeleteFunc(ids, isLive)...)
	n.ended.setGarbage(true)
	n.ended.notify()
	return err
}

// removeEnded removes ended sandboxes from the networks of CNI plugins: all, or only those whose removal has not failed yet. Then it runs
// the command GC if this is due. It returns the errors.
func (n *Network) removeEnded(ctx context.Context, all bool) error {
	var g errgroup.Group
	g.SetLimit(maxDeletes)
	var mu sync.Mutex
	var errs []error
	for _, id := range n.ended.list(all) {
		g.Go(func() error {
			if err := n.removeEndedSandbox(ctx, id); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	if ctx.Err() == nil && n.ended.setGarbage(false) {
		n.operations.Lock()
		err := n.plugins.collectGarbage(ctx, n.ended.has)
		n.operations.Unlock()
		if err != nil {
			n.cfg.Log.Warn("a CNI plugin could not remove leftovers", "error", err)
			if ctx.Err() != nil {
				n.ended.setGarbage(true)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n *Network) removeEndedSandbox(ctx context.Context, id string) error {
	n.sandboxLocks.Lock(id)
	defer n.sandboxLocks.Unlock(id)
	if ctx.Err() != nil || !n.ended.has(id) { // it was set up again, or torn down
		return ctx.Err()
	}
	// SetPodCIDRs does not wait for a plugin, because its wait would hold up all sandboxes.
	err := n.plugins.tearDownSandbox(ctx, id, "")
	if err == nil {
		n.operations.RLock()
		err = n.tearDownSandbox(ctx, id, "")
		n.operations.RUnlock()
	}
	if err == nil {
		n.ended.remove(id)
		return nil
	}
	if ctx.Err() == nil && n.ended.setFailed(id) {
		n.cfg.Log.Warn("the network of an ended sandbox could not be removed: islet retries", "sandbox", id, "error", err)
	}
	return err
}

// removeEndedLoop removes ended sandboxes until ctx ends. After a failure it retries with backoff.
func (n *Network) removeEndedLoop(ctx context.Context) {
	backoff := retry.Backoff{FirstWindow: firstRetry, MaxWindow: lastRetry}
	again := time.NewTimer(0) // the first attempt
	defer again.Stop()
	for pending := true; ; {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-n.ended.wake:
		case <-again.C:
			all, pending = true, false
		}
		err := n.removeEnded(ctx, all)
		switch {
		case err != nil && !pending: // other failures do not postpone an attempt
			again.Reset(backoff.Next(0))
			pending = true
		case err == nil && all:
			backoff.Reset()
		}
	}
}
