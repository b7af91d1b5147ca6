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
	// gcTime is the timeout of the command GC. No sandbox can be set up or torn down meanwhile.
	gcTime = 20 * time.Second
	// maxDeletes is the maximum number of ended sandboxes for which plugins run the command DEL at the same time.
	maxDeletes = 4
	// firstRetry and lastRetry are the windows of the pauses after a failed DEL.
	firstRetry, lastRetry = 10 * time.Second, 5 * time.Minute
)

// endedSandboxes contains the sandboxes that have ended and are still on a network: sandboxes of a former boot that have an attachment, and
// sandboxes whose removal has failed. No pod and no record of the runtime may refer to such a sandbox any more, so only this type remembers
// it.
type endedSandboxes struct {
	wake       chan struct{} // capacity 1; a value makes run look whether there is work, and set its timer
	firstRetry time.Duration

	mu      sync.Mutex
	ids     map[string]bool               // the value is true if the failure of the removal was logged
	running map[string]context.CancelFunc // by ID: ends the running removal
	garbage bool                          // the command GC is due
}

func newEndedSandboxes() *endedSandboxes {
	return &endedSandboxes{
		wake: make(chan struct{}, 1), firstRetry: firstRetry, ids: map[string]bool{}, running: map[string]context.CancelFunc{},
	}
}

// add adds sandboxes. Their removal does not begin at once, because the plugin has just failed, or Reconcile removes them.
func (e *endedSandboxes) add(ids ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.ids[id] = e.ids[id]
	}
	e.notify()
}

func (e *endedSandboxes) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// remove removes a sandbox, and ends the removal that is running for it. It reports whether e contained the sandbox.
func (e *endedSandboxes) remove(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.ids[id]
	delete(e.ids, id)
	if cancel := e.running[id]; cancel != nil {
		cancel()
	}
	return known
}

func (e *endedSandboxes) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.ids[id]
	return known
}

// begin records a removal that remove can end, or returns false if the sandbox was removed from e. The caller holds the sandbox's lock and
// calls end later.
func (e *endedSandboxes) begin(id string, cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.ids[id]
	if known {
		e.running[id] = cancel
	}
	return known
}

func (e *endedSandboxes) end(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, id)
}

// setFailed records a failed removal. It reports whether it must be logged.
func (e *endedSandboxes) setFailed(id string) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was, known := e.ids[id]
	if known {
		e.ids[id] = true
	}
	return known && !was
}

// list returns the IDs, sorted.
func (e *endedSandboxes) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.ids))
}

// hasWork reports whether sandboxes must be removed, or the command GC is due.
func (e *endedSandboxes) hasWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ids) > 0 || e.garbage
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
	n.ended.setGarbage(true)
	n.ended.add(slices.DeleteFunc(ids, isLive)...)
	return err
}

// removeEnded removes all ended sandboxes from the networks of CNI plugins. Then it runs the command GC if this is due. It returns the
// errors.
func (n *Network) removeEnded(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(maxDeletes)
	var mu sync.Mutex
	var errs []error
	for _, id := range n.ended.list() {
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
	return errors.Join(append(errs, n.collectGarbage(ctx))...)
}

// collectGarbage runs the command GC if this is due. If operations are running, collectGarbage does not wait for them, and GC stays due.
// Waiting for the write lock would block the operations of all sandboxes.
func (n *Network) collectGarbage(ctx context.Context) error {
	if ctx.Err() != nil || !n.ended.setGarbage(false) {
		return nil
	}
	if !n.operations.TryLock() {
		n.ended.setGarbage(true)
		return nil
	}
	err := n.plugins.collectGarbage(ctx, n.ended.has)
	n.operations.Unlock()
	if err != nil {
		n.cfg.Log.Warn("a CNI plugin could not remove leftovers", "error", err)
		if ctx.Err() != nil {
			n.ended.setGarbage(true)
		}
	}
	return err
}

func (n *Network) removeEndedSandbox(ctx context.Context, id string) error {
	n.sandboxLocks.Lock(id)
	defer n.sandboxLocks.Unlock(id)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if ctx.Err() != nil || !n.ended.begin(id, cancel) { // the sandbox was set up again, or torn down
		return ctx.Err()
	}
	defer n.ended.end(id)
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

// removeEndedLoop removes ended sandboxes until ctx ends: those that exist now at once, and later ones after a pause. After a failure it
// retries with backoff.
func (n *Network) removeEndedLoop(ctx context.Context) {
	backoff := retry.Backoff{FirstWindow: n.ended.firstRetry, SecondWindow: lastRetry, MaxWindow: lastRetry}
	again := time.NewTimer(0) // the first attempt
	defer again.Stop()
	for pending := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-n.ended.wake:
		case <-again.C:
			pending = false
			_ = n.removeEnded(ctx) // it has logged the errors
			if !n.ended.hasWork() {
				backoff.Reset()
			}
		}
		if !pending && n.ended.hasWork() {
			again.Reset(backoff.Next(0))
			pending = true
		}
	}
}
