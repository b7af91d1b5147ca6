package ctrd

import (
	"context"
	"fmt"
	"os"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// RemoveContainer removes a container and kills it first if it is running. It returns no error if
// the container does not exist. The log files are not removed.
func (r *Runtime) RemoveContainer(ctx context.Context, req *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return &api.RemoveContainerResponse{}, ignoreNotFound(err)
	}
	if err := r.checkContainerOwner(ctx, c, "remove container"); err != nil {
		return nil, err
	}
	if err := r.removeContainer(ctx, c); err != nil {
		return nil, err
	}
	return &api.RemoveContainerResponse{}, nil
}

func (r *Runtime) removeContainer(ctx context.Context, c *container) error {
	if err := r.stopContainer(ctx, c, 0); err != nil {
		return fmt.Errorf("remove container %s: %w", c.rec.ID, err)
	}
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	r.mu.Lock()
	_, exists := r.containers[c.rec.ID]
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if !exists {
		return nil // another call has removed it
	}
	r.removePin(c)
	if err := r.releaseContainer(ctx, c); err != nil {
		return fmt.Errorf("remove container %s: %w", c.rec.ID, err)
	}
	if err := r.removeContainerDir(c.rec.ID); err != nil {
		return fmt.Errorf("remove container %s: %w", c.rec.ID, err)
	}
	r.mu.Lock()
	delete(r.containers, c.rec.ID)
	r.podContainers.drop(c.config.GetLabels(), c.rec.ID)
	r.mu.Unlock()
	if err := r.dropViewsOf(ctx, c); err != nil {
		r.log.Warn("the snapshot views of an image were not removed", "container", c.rec.ID, "error", err)
	}
	r.notifySandbox(s, c.rec.ID, api.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// removeContainerDir removes the container's record and then its directory. If the process dies in
// between, the next start removes the directory, because it has no record.
func (r *Runtime) removeContainerDir(id string) error {
	if err := os.Remove(r.recordPath(id)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return mounts.RemoveAll(r.containerDir(id))
}
