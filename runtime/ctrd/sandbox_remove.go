package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox stops a sandbox and removes it with its containers. It returns no error if the
// sandbox does not exist.
func (r *Runtime) RemovePodSandbox(ctx context.Context, req *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return &api.RemovePodSandboxResponse{}, ignoreNotFound(err)
	}
	if err := r.checkOwner(ctx, s, "remove sandbox"); err != nil {
		return nil, err
	}
	if err := r.ops.LockContext(ctx, s.rec.ID); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(s.rec.ID)
	if err := r.stopSandbox(ctx, s); err != nil {
		return nil, err
	}
	for _, c := range r.containersOf(s.rec.ID) {
		if err := r.removeContainer(ctx, c); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(r.sandboxPath(s.rec.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove sandbox %s: %w", s.rec.ID, err)
	}
	r.mu.Lock()
	delete(r.sandboxes, s.rec.ID)
	r.podSandboxes.drop(s.config.GetLabels(), s.rec.ID)
	r.mu.Unlock()
	r.shims.removeSandbox(s.rec.ID)
	r.selinux.Release(s.rec.Level)
	r.notifySandbox(s, s.rec.ID, api.ContainerEventType_CONTAINER_DELETED_EVENT)
	return &api.RemovePodSandboxResponse{}, nil
}

func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
