package ctrd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/runtime/mounts"
)

// DropLayers deletes the writable layers of exited containers, which no process uses any more. The
// containers and their statuses remain.
func (r *Runtime) DropLayers(ctx context.Context) error {
	var ended []*container
	r.mu.Lock()
	for _, c := range r.containers {
		if c.state() == api.ContainerState_CONTAINER_EXITED {
			ended = append(ended, c)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, c := range ended {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if err := r.dropLayer(c); err != nil {
			errs = append(errs, fmt.Errorf("delete the writable layer of container %s: %w", c.rec.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Runtime) dropLayer(c *container) error {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	var errs []error
	for _, name := range []string{"upper", "work", "rootfs", imageVolumes} {
		errs = append(errs, mounts.RemoveAll(filepath.Join(r.containerDir(c.rec.ID), name)))
	}
	err := errors.Join(errs...)
	c.dropped.Store(err == nil)
	return err
}

// maxLayerAge is the maximum age of a cached layer size. The size is cached because all directories
// of the layer must be read to measure it.
const maxLayerAge = time.Minute

// WritableLayers returns the sizes of running containers' writable layers, by container ID. It is
// cheaper than ListContainerStats, for callers that need only these sizes.
func (r *Runtime) WritableLayers(ctx context.Context) (map[string]*api.FilesystemUsage, error) {
	r.mu.Lock()
	running := make([]*container, 0, len(r.containers))
	for _, c := range r.containers {
		if c.pid > 0 {
			running = append(running, c)
		}
	}
	r.mu.Unlock()
	out := make(map[string]*api.FilesystemUsage, len(running))
	for _, c := range running {
		l, err := r.writableLayerUsage(ctx, c)
		if err != nil {
			return nil, err
		}
		out[c.rec.ID] = l
	}
	return out, nil
}

// WholeLayer measures a container's writable layer completely, which may take minutes. The second result is false if the layer has more
// files than can be counted.
func (r *Runtime) WholeLayer(ctx context.Context, id string) (layer *api.FilesystemUsage, whole bool, err error) {
	c, err := r.findContainer(id)
	if err != nil {
		return nil, false, err
	}
	u, err := r.measureLayer(ctx, c, func(ctx context.Context, dir string) disk.Usage { return r.trees.UsageOfAll(ctx, dir, maxLayerAge) })
	return r.layerUsage(u), !u.Incomplete, err
}

// writableLayerUsage returns the size of a container's writable layer. If it has very many files, the result is
// a lower bound.
func (r *Runtime) writableLayerUsage(ctx context.Context, c *container) (*api.FilesystemUsage, error) {
	u, err := r.measureLayer(ctx, c, r.trees.Usage)
	return r.layerUsage(u), err
}

// measureLayer adds up the sizes of a container's writable layer and of the volumes of its image. It
// fails only if ctx ends. Changes of the files by the container cause no error.
func (r *Runtime) measureLayer(ctx context.Context, c *container, tree func(context.Context, string) disk.Usage) (u disk.Usage, err error) {
	if c.dropped.Load() {
		return disk.Usage{At: time.Now()}, nil
	}
	for _, name := range []string{"upper", "rootfs"} { // one of them exists; the size includes the directory itself
		if u = tree(ctx, filepath.Join(r.containerDir(c.rec.ID), name)); u.Inodes > 0 {
			break
		}
	}
	if c.rec.ImageVolumes > 0 {
		v := tree(ctx, filepath.Join(r.containerDir(c.rec.ID), imageVolumes))
		u.Bytes, u.Inodes, u.Incomplete = u.Bytes+v.Bytes, u.Inodes+v.Inodes, u.Incomplete || v.Incomplete
	}
	if err := ctx.Err(); err != nil {
		return disk.Usage{}, fmt.Errorf("measure the files of container %s: %w", c.rec.ID, err)
	}
	return u, nil
}

func (r *Runtime) layerUsage(u disk.Usage) *api.FilesystemUsage {
	return &api.FilesystemUsage{
		Timestamp: u.At.UnixNano(), FsId: &api.FilesystemIdentifier{Mountpoint: r.dirs.containers},
		UsedBytes: u64(u.Bytes), InodesUsed: u64(u.Inodes),
	}
}
