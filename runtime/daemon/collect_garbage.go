package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
)

// collectDelay is the delay between a deletion and the garbage collection. Deletions during the
// delay need no collection of their own.
const collectDelay = time.Second

// asideInterval is the interval at which the collector checks whether a container still uses layers of a damaged storage.
const asideInterval = time.Minute

// errClosed is returned by collectNow if the storage is closed.
var errClosed = errors.New("containerd's storage is closed")

// A collector removes unreferenced content and snapshots: collectDelay after a deletion, or at once
// on request. All collections run in one goroutine.
type collector struct {
	db         *metadata.DB
	disk       storage
	log        *slog.Logger
	deleted    chan struct{}   // capacity 1; receives a value after a deletion
	requests   chan chan error // requests to collect now; each channel receives the result
	stopSignal chan struct{}
	ended      chan struct{}
}

func newCollector(db *metadata.DB, disk storage, log *slog.Logger) *collector {
	c := &collector{
		db: db, disk: disk, log: log,
		deleted:    make(chan struct{}, 1),
		requests:   make(chan chan error),
		stopSignal: make(chan struct{}),
		ended:      make(chan struct{}),
	}
	db.RegisterMutationCallback(func(deleted bool) {
		if deleted {
			select {
			case c.deleted <- struct{}{}:
			default:
			}
		}
	})
	go c.run()
	return c
}

func (c *collector) run() {
	defer close(c.ended)
	var due, aside <-chan time.Time
	if c.hasAside() {
		aside = time.After(collectDelay)
	}
	for {
		select {
		case <-c.stopSignal:
			return
		case <-c.deleted:
			if due == nil {
				due = time.After(collectDelay)
			}
		case <-due:
			due = nil
			if err := c.collect(); err != nil {
				c.log.Warn("containerd's garbage collection failed", "error", err)
			}
			c.removeAside()
		case <-aside: // the removal of the last container that uses the layers causes no collection
			aside = nil
			if c.removeAside(); c.hasAside() {
				aside = time.After(asideInterval)
			}
		case done := <-c.requests:
			err := c.collect()
			c.removeAside()
			done <- err
		}
	}
}

// hasAside reports whether there are layers of a damaged storage. Only Start adds such layers.
func (c *collector) hasAside() bool { return len(c.disk.listAside()) > 0 }

func (c *collector) removeAside() {
	if err := c.disk.removeUnused(c.stopSignal); err != nil {
		c.log.Warn("the layers of a damaged storage could not be removed", "error", err)
	}
}

func (c *collector) collect() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := c.db.GarbageCollect(ctx)
	return err
}

// errContinues is returned by collectNow if ctx has ended before the collection.
var errContinues = errors.New("unused layers and content are still being removed from the disk")

// collectNow runs a collection in the collector's goroutine and returns its result. If ctx ends first, the collection continues.
func (c *collector) collectNow(ctx context.Context) error {
	done := make(chan error, 1)
	requests := c.requests
	for {
		select {
		case requests <- done:
			requests = nil
		case err := <-done:
			return err
		case <-c.ended:
			select {
			case err := <-done:
				return err
			default:
				return errClosed
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errContinues, ctx.Err())
		}
	}
}

func (c *collector) stop() {
	close(c.stopSignal)
	<-c.ended
}

// leaseManager runs a garbage collection when a lease is deleted with the option SynchronousDelete,
// as containerd's server does.
type leaseManager struct {
	leases.Manager
	collector *collector
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
		return m.collector.collectNow(ctx)
	}
	return nil
}
