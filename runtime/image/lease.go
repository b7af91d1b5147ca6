package image

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

// Labels of a lease: what it is for, and for a pull the image reference.
const (
	labelLease = "islet.dev/image-lease"
	labelRef   = "islet.dev/image-ref"

	leaseImport = "import"
	leasePull   = "pull"
)

// cleanupTimeout bounds giving up a lease, which collects garbage.
const cleanupTimeout = time.Minute

// leaseSet knows the leases that this process works under, so that a sweep
// leaves them alone and no two pulls work under one.
type leaseSet struct {
	forsaken sync.Mutex // guards clean
	clean    bool       // see forsake

	mu   sync.Mutex
	busy map[string]chan struct{} // closed when it is let go
}

// acquire takes a lease as soon as no other has it. It is taken before it
// exists in containerd.
func (l *leaseSet) acquire(ctx context.Context, id string) error {
	for {
		busy := l.take(id)
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

// try takes a lease if no other has it.
func (l *leaseSet) try(id string) bool {
	return l.take(id) == nil
}

// take takes a lease, or returns what is closed when it is free.
func (l *leaseSet) take(id string) (busy <-chan struct{}) {
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

func (l *leaseSet) letGo(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.busy[id])
	delete(l.busy, id)
}

// withLease returns a context under whose lease content and snapshots are safe
// from garbage collection. done gives the lease up and collects at once what
// only it held.
func (s *Service) withLease(ctx context.Context) (leased context.Context, done func(), err error) {
	if err := s.forsake(ctx); err != nil {
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
		s.leases.letGo(id)
		return nil, nil, fmt.Errorf("create lease: %w", err)
	}
	return leases.WithLease(ctx, l.ID), func() {
		s.drop(ctx, l)
		s.leases.letGo(l.ID)
	}, nil
}

// forsake gives up, before this process makes its first layer, what an earlier
// one left that is no image yet: imports whole, and of pulls the layers that were
// unpacked, though not what was downloaded. Such layers may not have reached the
// disk when power went; what an image record leads to has.
func (s *Service) forsake(ctx context.Context) error {
	s.leases.forsaken.Lock()
	defer s.leases.forsaken.Unlock()
	if s.leases.clean {
		return nil
	}
	m := s.c.Client.LeasesService()
	all, err := m.List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range all {
		if l.Labels[labelLease] != leasePull {
			if err := m.Delete(ctx, l); err != nil {
				return fmt.Errorf("give up lease %s: %w", l.ID, err)
			}
			continue
		}
		held, err := m.ListResources(ctx, l)
		if err != nil {
			return fmt.Errorf("list resources of lease %s: %w", l.ID, err)
		}
		for _, r := range held {
			if !strings.HasPrefix(r.Type, "snapshots/") {
				continue
			}
			if err := m.DeleteResource(ctx, l, r); err != nil {
				return fmt.Errorf("give up %s %s: %w", r.Type, r.ID, err)
			}
		}
	}
	if len(all) > 0 {
		if err := s.collect(ctx); err != nil {
			return err
		}
	}
	s.leases.clean = true
	return nil
}

// collect frees at once what nothing holds: giving up a lease does that.
func (s *Service) collect(ctx context.Context) error {
	_, done, err := s.newLease(ctx)
	if err == nil {
		done()
	}
	return err
}

// drop deletes a lease, also when ctx has ended, and collects what only it held.
func (s *Service) drop(ctx context.Context, l leases.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := s.c.Client.LeasesService().Delete(ctx, l, leases.SynchronousDelete)
	if err != nil && !errdefs.IsNotFound(err) {
		// The lease stays; the next sweep takes it.
		s.log.Warn("lease of an image not given up", "lease", l.ID, "error", err)
	}
}

// sweep drops the leases of imports that no longer go on, and of pulls that made
// no progress for too long or, oldest first, together keep too much.
func (s *Service) sweep(ctx context.Context) error {
	all, err := s.c.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	slices.SortFunc(all, func(a, b leases.Lease) int { return b.CreatedAt.Compare(a.CreatedAt) })
	kept := int64(0)
	for _, l := range all {
		if err := s.sweepLease(ctx, l, &kept); err != nil {
			return err
		}
	}
	return nil
}

// sweepLease drops one lease, or adds to kept what it keeps. A pull of the same
// image waits until that is done.
func (s *Service) sweepLease(ctx context.Context, l leases.Lease, kept *int64) error {
	if !s.leases.try(l.ID) {
		return nil // its import or pull goes on
	}
	defer s.leases.letGo(l.ID)
	if l.Labels[labelLease] == leasePull {
		size, at, err := s.partial(ctx, l)
		if err != nil {
			return err
		}
		*kept += size
		if *kept <= partialBytes && time.Since(at) < partialAge {
			return nil
		}
	}
	s.drop(ctx, l)
	return nil
}

// partial tells how many bytes of downloads a lease keeps and when the last of
// them came, the zero time when there is nothing that a pull could go on from.
func (s *Service) partial(ctx context.Context, l leases.Lease) (size int64, at time.Time, err error) {
	held, err := s.c.Client.LeasesService().ListResources(ctx, l)
	if err != nil {
		return 0, at, fmt.Errorf("list resources of lease %s: %w", l.ID, err)
	}
	store := s.c.Client.ContentStore()
	for _, r := range held {
		var n int64
		var t time.Time
		switch r.Type {
		case "ingests":
			st, err := store.Status(ctx, r.ID)
			if err != nil {
				continue // finished: it is among the content
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

// holdSnapshot adds a snapshot to ctx's lease, whether it is there or not.
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
