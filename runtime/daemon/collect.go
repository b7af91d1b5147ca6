package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
)

// collectDelay is the delay between a deletion and the garbage collection. With it, many deletions need
// only one collection.
const collectDelay = time.Second

// errClosed is returned to callers that wait for a collection when the storage is closed.
var errClosed = errors.New("containerd's storage is closed")

// A collector removes content and snapshots that nothing refers to. It does so shortly after a
// deletion, or at once on request. All collections run in one goroutine.
type collector struct {
	db    *metadata.DB
	log   *slog.Logger
	dirty chan struct{}   // capacity 1
	now   chan chan error // each request is a channel that receives the result of the collection
	quit  chan struct{}
	ended chan struct{}
}

func newCollector(db *metadata.DB, log *slog.Logger) *collector {
	c := &collector{
		db: db, log: log,
		dirty: make(chan struct{}, 1),
		now:   make(chan chan error),
		quit:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	db.RegisterMutationCallback(func(deleted bool) {
		if deleted {
			select {
			case c.dirty <- struct{}{}:
			default:
			}
		}
	})
	go c.run()
	return c
}

func (c *collector) run() {
	defer close(c.ended)
	var due <-chan time.Time
	for {
		select {
		case <-c.quit:
			return
		case <-c.dirty:
			if due == nil {
				due = time.After(collectDelay)
			}
		case <-due:
			due = nil
			if err := c.collect(); err != nil {
				c.log.Warn("containerd's garbage collection failed", "error", err)
			}
		case done := <-c.now:
			done <- c.collect()
		}
	}
}

// collect removes garbage.
func (c *collector) collect() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := c.db.GarbageCollect(ctx)
	return err
}

// collectNow requests a collection and returns its result.
func (c *collector) collectNow(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case c.now <- done:
		return <-done
	case <-c.quit:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *collector) stop() {
	close(c.quit)
	<-c.ended
}

// leaseManager collects garbage when a lease is deleted synchronously, like the lease manager of
// containerd's server.
type leaseManager struct {
	leases.Manager
	collect *collector
}

func (m leaseManager) Delete(ctx context.Context, l leases.Lease, opts ...leases.DeleteOpt) error {
	var o leases.DeleteOptions
	for _, opt := range opts {
		if err := opt(ctx, &o); err != nil {
			return err
		}
	}
	if err := m.Manager.Delete(ctx, l); err != nil {
		return err
	}
	if o.Synchronous {
		return m.collect.collectNow(ctx)
	}
	return nil
}
