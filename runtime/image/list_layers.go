package image

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
)

// ListLayers implements cri.Layers. It skips snapshots of containers, whose names are not digests, and unfinished layers, which are not
// committed.
func (s *Service) ListLayers(ctx context.Context) (ids []string, err error) {
	err = s.snapshotter().Walk(withNamespace(ctx), func(_ context.Context, i snapshots.Info) error {
		if _, err := digest.Parse(i.Name); err == nil && i.Kind == snapshots.KindCommitted {
			ids = append(ids, i.Name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the layers of images: %w", err)
	}
	slices.Sort(ids)
	return ids, nil
}
