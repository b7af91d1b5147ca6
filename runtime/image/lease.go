package image

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/sorting"
)

// Labels of a lease: its purpose and, for a pull, the image reference.
const (
	labelLease = "islet.dev/image-lease"
	labelRef   = "islet.dev/image-ref"

	leaseImport = "import"
	leasePull   = "pull"
)

// cleanupTimeout is the timeout for deleting a lease. The deletion runs the garbage collector.
const cleanupTimeout = time.Minute

// leaseSet tracks the leases that this process uses. A sweep skips these leases, and two pulls
// cannot use the same lease at the same time.
type leaseSet struct {
	cleaning sync.Mutex // guards clean
	clean    bool       // whether dropUnfinished has succeeded

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
		s.dropLease(ctx, l)
		s.leases.release(l.ID)
	}, nil
}

// dropUnfinished removes the unfinished work of an earlier process. It runs before this process
// creates its first layer. It deletes the leases of imports, and the unpacked layers of pulls,
// because a power cut may have damaged layers that were not yet flushed to disk. The layers of
// recorded images were flushed. The downloads of pulls are kept.
func (s *Service) dropUnfinished(ctx context.Context) error {
	s.leases.cleaning.Lock()
	defer s.leases.cleaning.Unlock()
	if s.leases.clean {
		return nil
	}
	m := s.c.Client.LeasesService()
	list, err := m.List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range list {
		if l.Labels[labelLease] != leasePull {
			if err := m.Delete(ctx, l); err != nil {
				return fmt.Errorf("delete lease %s: %w", l.ID, err)
			}
			continue
		}
		resources, err := m.ListResources(ctx, l)
		if err != nil {
			return fmt.Errorf("list resources of lease %s: %w", l.ID, err)
		}
		for _, r := range resources {
			if !strings.HasPrefix(r.Type, "snapshots/") {
				continue
			}
			if err := m.DeleteResource(ctx, l, r); err != nil {
				return fmt.Errorf("remove %s %s from its lease: %w", r.Type, r.ID, err)
			}
		}
	}
	if len(list) > 0 {
		if err := s.collectGarbage(ctx); err != nil {
			return err
		}
	}
	s.leases.clean = true
	return nil
}

// collectGarbage runs the garbage collector, by deleting a lease.
func (s *Service) collectGarbage(ctx context.Context) error {
	_, done, err := s.newLease(ctx)
	if err == nil {
		done()
	}
	return err
}

// dropLease deletes a lease, even if ctx has ended, and collects everything that only this lease
// protected.
func (s *Service) dropLease(ctx context.Context, l leases.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := s.c.Client.LeasesService().Delete(ctx, l, leases.SynchronousDelete)
	if err != nil && !errdefs.IsNotFound(err) {
		// The next sweep will delete the lease.
		s.log.Warn("the lease of an image could not be deleted", "lease", l.ID, "error", err)
	}
}

// sweepLeases deletes the leases of imports that are not running any more, and of pulls without progress
// for partialAge. Then it deletes the oldest leases until the rest keep at most partialBytes.
func (s *Service) sweepLeases(ctx context.Context) error {
	list, err := s.c.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	sorting.By(list, func(a, b leases.Lease) int { return b.CreatedAt.Compare(a.CreatedAt) })
	kept := int64(0)
	for _, l := range list {
		if err := s.sweepLease(ctx, l, &kept); err != nil {
			return err
		}
	}
	return nil
}

// sweepLease deletes the lease of a stopped import, or of a stopped pull that is too old or too large to be resumed. It adds the size of a
// stopped pull to *kept. A pull of the same image waits until sweepLease has returned.
func (s *Service) sweepLease(ctx context.Context, l leases.Lease, kept *int64) error {
	if !s.leases.tryAcquire(l.ID) {
		return nil // its import or pull is running
	}
	defer s.leases.release(l.ID)
	if l.Labels[labelLease] == leasePull {
		size, at, err := s.partialSize(ctx, l)
		if err != nil {
			return err
		}
		*kept += size
		if *kept <= partialBytes && time.Since(at) < partialAge {
			return nil
		}
	}
	s.dropLease(ctx, l)
	return nil
}

// partialSize returns the size of the downloads that a lease keeps, and the time of the last progress.
// The time is zero if there is nothing that a pull could resume.
func (s *Service) partialSize(ctx context.Context, l leases.Lease) (size int64, at time.Time, err error) {
	resources, err := s.c.Client.LeasesService().ListResources(ctx, l)
	if err != nil {
		return 0, at, fmt.Errorf("list resources of lease %s: %w", l.ID, err)
	}
	store := s.c.Client.ContentStore()
	for _, r := range resources {
		var n int64
		var t time.Time
		switch r.Type {
		case "ingests":
			st, err := store.Status(ctx, r.ID)
			if err != nil {
				continue // it is complete and in the content store
			}
			n, t = st.Offset, st.UpdatedAt
		case "content":
			info, err := store.Info(ctx, digest.Digest(r.ID))
			if err != nil {
				continue
			}
			n, t = info.Size, info.CreatedAt
		}
		size += n
		if t.After(at) {
			at = t
		}
	}
	return size, at, nil
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
