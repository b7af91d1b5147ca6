package image

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Reclaim removes all data that belongs to no image: the downloads of stopped pulls, however
// recent, unreferenced layers and content, and images that cannot be used because a part of them is
// damaged. This includes files on disk that are not in containerd's records. Running pulls and imports are not affected.
func (s *Service) Reclaim(ctx context.Context) error {
	ctx = withNamespace(ctx)
	if err := s.dropUnfinished(ctx); err != nil {
		return err
	}
	if err := s.deleteAllIncomplete(ctx); err != nil {
		return err
	}
	list, err := s.c.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range list {
		if s.leases.tryAcquire(l.ID) { // otherwise its import or pull is running
			s.dropLease(ctx, l)
			s.leases.release(l.ID)
		}
	}
	defer s.usage.invalidate()
	return s.collectAll(ctx)
}

// collectAll removes unreferenced data, and files on disk that are not in containerd's records.
// containerd looks for such files only in the stores from which it has deleted something. Therefore
// collectAll first creates a snapshot and a blob, which containerd deletes.
func (s *Service) collectAll(ctx context.Context) error {
	leased, done, err := s.newLease(ctx)
	if err != nil {
		return err
	}
	defer done()
	name := "islet-reclaim-" + rand.Text()
	if _, err := s.snapshotter().Prepare(leased, name, ""); err != nil {
		return fmt.Errorf("search for unreferenced layers: %w", err)
	}
	blob := []byte(name)
	d := ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	if err := content.WriteBlob(leased, s.c.Client.ContentStore(), name, bytes.NewReader(blob), d); err != nil {
		return fmt.Errorf("search for unreferenced content: %w", err)
	}
	return nil
}
