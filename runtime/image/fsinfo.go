package image

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// usageCache caches the disk usage of the images' snapshots until the images change.
type usageCache struct {
	mu     sync.Mutex
	valid  bool
	change int // number of changes, to detect a change during a walk
	usage  snapshots.Usage
	at     time.Time
}

func (u *usageCache) invalidate() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.valid = false
	u.change++
}

// ImageFsInfo returns the bytes and inodes of all unpacked layers, as the usage of the file system
// of Config.Root. The result is cached until the images change. The sizes of the layers are those
// that containerd stored when it unpacked them. Writable layers are not included, because they
// count as usage of the containers.
func (s *Service) ImageFsInfo(ctx context.Context, _ *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error) {
	u, at, err := s.imageUsage(withNamespace(ctx))
	if err != nil {
		return nil, err
	}
	fs := &api.FilesystemUsage{
		Timestamp:  at.UnixNano(),
		FsId:       &api.FilesystemIdentifier{Mountpoint: s.c.Root},
		UsedBytes:  &api.UInt64Value{Value: uint64(u.Size)},
		InodesUsed: &api.UInt64Value{Value: uint64(u.Inodes)},
	}
	return &api.ImageFsInfoResponse{
		ImageFilesystems:     []*api.FilesystemUsage{fs},
		ContainerFilesystems: []*api.FilesystemUsage{fs},
	}, nil
}

func (s *Service) imageUsage(ctx context.Context) (snapshots.Usage, time.Time, error) {
	c := &s.usage
	c.mu.Lock()
	if c.valid {
		defer c.mu.Unlock()
		return c.usage, c.at, nil
	}
	change := c.change
	c.mu.Unlock()

	sn := s.snapshotter()
	var layers []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		layers = append(layers, info.Name)
		return nil
	}, "kind==committed")
	if err != nil {
		return snapshots.Usage{}, time.Time{}, fmt.Errorf("list image layers: %w", err)
	}
	var sum snapshots.Usage
	for _, name := range layers {
		u, err := sn.Usage(ctx, name)
		if errdefs.IsNotFound(err) {
			continue // another call has removed it
		}
		if err != nil {
			return snapshots.Usage{}, time.Time{}, fmt.Errorf("usage of image layer %s: %w", name, err)
		}
		sum.Add(u)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.change == change {
		c.valid, c.usage, c.at = true, sum, now
	}
	return sum, now, nil
}
