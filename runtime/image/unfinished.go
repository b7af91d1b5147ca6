package image

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/sorting"
)

const (
	// partialAge is the time for which a stopped pull can be resumed.
	partialAge = 24 * time.Hour
	// partialBytes is the maximum size of the downloads of all stopped pulls on disk.
	partialBytes = 2 << 30
)

// sweepEvery is the interval at which Run removes pulls that were not resumed.
const sweepEvery = 6 * time.Hour

// Run first removes unfinished imports and pulls of an earlier process, except downloads that can
// be resumed. Then, at intervals, it removes the downloads that were not resumed in time. It blocks
// until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		err := s.dropUnfinished(withNamespace(ctx))
		if err == nil {
			err = s.sweepLeases(withNamespace(ctx), time.Now())
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("leases of unfinished images could not be cleaned up", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// dropUnfinished removes the unfinished work of an earlier process. It runs before this process
// creates its first layer. It deletes the leases of imports, and the unpacked layers of pulls,
// because a power cut may have damaged layers that were not yet flushed to disk. The layers of
// recorded images were flushed. The downloads of pulls are kept.
func (s *Service) dropUnfinished(ctx context.Context) error {
	if err := s.leases.cleaning.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.leases.cleaning.Release(1)
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

// sweepLeases deletes the leases of imports that are not running any more, and of pulls without progress
// for partialAge. Then it deletes the oldest leases until the rest keep at most partialBytes.
func (s *Service) sweepLeases(ctx context.Context, now time.Time) error {
	list, err := s.c.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	sorting.By(list, func(a, b leases.Lease) int { return b.CreatedAt.Compare(a.CreatedAt) })
	kept := int64(0)
	for _, l := range list {
		if err := s.sweepLease(ctx, l, now, &kept); err != nil {
			return err
		}
	}
	return nil
}

// sweepLease deletes the lease of a stopped import, or of a stopped pull that is too old or too large to be resumed. It adds the size of a
// stopped pull to *kept. A pull of the same image waits until sweepLease has returned.
func (s *Service) sweepLease(ctx context.Context, l leases.Lease, now time.Time, kept *int64) error {
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
		if up, _ := clock.Uptime(); *kept <= partialBytes && !clock.IsExpired(at, now, partialAge, up) {
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
