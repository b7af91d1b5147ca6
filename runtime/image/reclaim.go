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

// Reclaim frees what belongs to no image: downloads of pulls that stopped, however new they
// are, and layers and content that nothing refers to, also those on the disk that
// containerd's records do not know. What a pull or an import that goes on works at stays.
func (s *Service) Reclaim(ctx context.Context) error {
	ctx = namespaced(ctx)
	if err := s.forsake(ctx); err != nil {
		return err
	}
	all, err := s.c.Client.LeasesService().List(ctx, fmt.Sprintf("labels.%q", labelLease))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range all {
		if s.leases.try(l.ID) { // else its import or pull goes on
			s.drop(ctx, l)
			s.leases.letGo(l.ID)
		}
	}
	defer s.usage.forget()
	return s.collectAll(ctx)
}

// collectAll frees what nothing holds, and compares the disk with the records: containerd
// does so only where something was deleted, so a layer and a blob are made for it to delete.
func (s *Service) collectAll(ctx context.Context) error {
	leased, done, err := s.newLease(ctx)
	if err != nil {
		return err
	}
	defer done()
	name := "islet-reclaim-" + rand.Text()
	if _, err := s.snapshots().Prepare(leased, name, ""); err != nil {
		return fmt.Errorf("look for layers that nobody knows: %w", err)
	}
	blob := []byte(name)
	d := ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	if err := content.WriteBlob(leased, s.c.Client.ContentStore(), name, bytes.NewReader(blob), d); err != nil {
		return fmt.Errorf("look for content that nobody knows: %w", err)
	}
	return nil
}
