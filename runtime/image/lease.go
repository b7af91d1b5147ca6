package image

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/semaphore"
)

// Labels of a lease: its purpose and, for a pull, the image reference.
const (
	labelLease = "islet.dev/image-lease"
	labelRef   = "islet.dev/image-ref"

	leaseImport = "import"
	leasePull   = "pull"
)

// cleanupTimeout is the timeout for deleting a lease and for the garbage collection that follows. A longer collection continues.
const cleanupTimeout = time.Minute

// leaseSet tracks the leases that this process uses. A sweep skips these leases, and two pulls
// cannot use the same lease at the same time.
type leaseSet struct {
	cleaning *semaphore.Weighted // guards clean
	clean    bool                // whether dropUnfinished has succeeded

	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the lease is released
}

// acquire waits until a lease is not in use, and marks it as used. Call it before the lease is
// created in containerd.
func (l *leaseSet) acquire(ctx context.Context, id string) error {
	for {
		busy := l.acquireOrWait(id)
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryAcquire marks a lease as used. It returns false if the lease is already in use.
func (l *leaseSet) tryAcquire(id string) bool {
	return l.acquireOrWait(id) == nil
}

// acquireOrWait marks a lease as used. If it is already in use, it returns a channel that is closed when the
// lease is released.
func (l *leaseSet) acquireOrWait(id string) (busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.busy[id]; c != nil {
		return c
	}
	if l.busy == nil {
		l.busy = map[string]chan struct{}{}
	}
	l.busy[id] = make(chan struct{})
	return nil
}

func (l *leaseSet) release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.busy[id])
	delete(l.busy, id)
}

// withLease returns a context with a new lease, which protects content and snapshots from garbage collection. The returned function deletes
// the lease and collects everything that only this lease protected.
func (s *Service) withLease(ctx context.Context) (leased context.Context, done func(), err error) {
	if err := s.dropUnfinished(ctx); err != nil {
		return nil, nil, err
	}
	return s.newLease(ctx)
}

func (s *Service) newLease(ctx context.Context) (leased context.Context, done func(), err error) {
	id := "islet-import-" + rand.Text()
	if err := s.leases.acquire(ctx, id); err != nil {
		return nil, nil, err
	}
	l, err := s.c.Client.LeasesService().Create(ctx, leases.WithID(id), leases.WithLabel(labelLease, leaseImport))
	if err != nil {
		s.leases.release(id)
		return nil, nil, fmt.Errorf("create lease: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func() {
		s.dropLease(ctx, l, leases.SynchronousDelete)
		s.leases.release(l.ID)
	}, nil
}

// collectGarbage runs the garbage collector, by deleting a lease, and waits for at most cleanupTimeout. A collection that takes longer
// continues. The result is an error if ctx has ended, if the time has passed, or if there is no lease. All other errors are only logged.
func (s *Service) collectGarbage(ctx context.Context) error {
	leased, _, err := s.newLease(ctx)
	if err != nil {
		return err
	}
	l := leases.Lease{ID: leaseOf(leased)}
	defer s.leases.release(l.ID)
	limited, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err = s.c.Client.LeasesService().Delete(limited, l, leases.SynchronousDelete)
	if err != nil && limited.Err() == nil {
		s.log.Warn(notCollected, "error", err)
		return nil
	}
	return err
}

const notCollected = "unused layers and content are not removed from the disk yet"

// dropLease deletes a lease, even if ctx has ended. The garbage collector then removes everything that only this lease protected. With the
// option SynchronousDelete, dropLease waits for the collection, which the removal of another image's files may delay.
func (s *Service) dropLease(ctx context.Context, l leases.Lease, opts ...leases.DeleteOpt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := s.c.Client.LeasesService().Delete(ctx, l, opts...)
	if err != nil && !errdefs.IsNotFound(err) {
		// The next sweep will delete the lease.
		s.log.Warn("the lease of an image was not deleted, or the data that it protected is not removed yet", "lease", l.ID, "error", err)
	}
}

// holdSnapshot adds a snapshot to the lease of ctx. The snapshot need not exist yet.
func (s *Service) holdSnapshot(ctx context.Context, id string) error {
	r := leases.Resource{Type: "snapshots/" + s.c.Snapshotter, ID: id}
	if err := s.c.Client.LeasesService().AddResource(ctx, leases.Lease{ID: leaseOf(ctx)}, r); err != nil {
		return fmt.Errorf("hold snapshot %s: %w", id, err)
	}
	return nil
}

func leaseOf(ctx context.Context) string {
	id, _ := leases.FromContext(ctx)
	return id
}

// pullLease returns a context with a lease for a pull, like withLease. The lease belongs to the
// image's name, so two pulls of the same name do not run at the same time. If the pull fails, the
// lease is kept, so that the next pull can resume the downloads.
func (s *Service) pullLease(ctx context.Context, name string) (leased context.Context, done func(ok bool), err error) {
	if err := s.dropUnfinished(ctx); err != nil {
		return nil, nil, err
	}
	l := leases.Lease{ID: "islet-pull-" + digest.FromString(name).Encoded()}
	if err := s.leases.acquire(ctx, l.ID); err != nil {
		return nil, nil, err
	}
	labels := leases.WithLabels(map[string]string{labelLease: leasePull, labelRef: name})
	_, err = s.c.Client.LeasesService().Create(ctx, leases.WithID(l.ID), labels)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		s.leases.release(l.ID)
		return nil, nil, fmt.Errorf("create lease: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func(ok bool) {
		if ok {
			s.dropLease(ctx, l)
		}
		s.leases.release(l.ID)
		if ok {
			return
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := s.sweepLeases(clean, time.Now()); err != nil {
			s.log.Warn("leases of unfinished images could not be cleaned up", "error", err)
		}
	}, nil
}
