package ctrd

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog makes the shim reopen the log file. Programs call it after they have rotated
// the file.
func (r *Runtime) ReopenContainerLog(ctx context.Context, req *api.ReopenContainerLogRequest) (*api.ReopenContainerLogResponse, error) {
	c, client, err := r.runningContainer(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := client.ReopenLog(ctx, c.rec.ID); err != nil {
		return nil, fmt.Errorf("reopen log of container %s: %w", c.rec.ID, err)
	}
	return &api.ReopenContainerLogResponse{}, nil
}

// runningContainer returns a running container and the runner of its sandbox. The error is
// ErrFailedPrecondition if the container is not running.
func (r *Runtime) runningContainer(ctx context.Context, id string) (*container, runner, error) {
	c, err := r.findContainer(id)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	state, s := c.state(), r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if state != api.ContainerState_CONTAINER_RUNNING || s == nil {
		return nil, nil, fmt.Errorf("container %s is not running: %w", c.rec.ID, errdefs.ErrFailedPrecondition)
	}
	client, err := r.startRunner(ctx, s)
	return c, client, err
}
