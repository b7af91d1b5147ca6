package worker

import (
	"context"
	"fmt"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopSandbox stops a sandbox and releases its network. The sandbox need not be running.
func (e *Executor) stopSandbox(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	if _, err := e.cfg.Runtime.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: id}); ignoreNotFound(err) != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

func (e *Executor) removeSandbox(ctx context.Context, id string) error {
	if err := e.stopSandbox(ctx, id); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	if _, err := e.cfg.Runtime.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: id}); ignoreNotFound(err) != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}
