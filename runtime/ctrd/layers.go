package ctrd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// DropLayers frees what containers that have ended wrote to their root file systems, which
// nothing can read any more. What is known of them stays.
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
			errs = append(errs, fmt.Errorf("free what container %s wrote: %w", c.rec.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Runtime) dropLayer(c *container) error {
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	var errs []error
	for _, name := range []string{"upper", "work", "rootfs"} {
		errs = append(errs, mounts.RemoveAll(filepath.Join(r.containerDir(c.rec.ID), name)))
	}
	c.usage.mu.Lock()
	defer c.usage.mu.Unlock()
	c.usage.at, c.usage.bytes, c.usage.inodes = time.Now(), 0, 0
	return errors.Join(errs...)
}
