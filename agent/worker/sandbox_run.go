package worker

import (
	"context"
	"fmt"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/plan"
)

// runSandbox gives back what older sandboxes of the pod hold and runs the next
// one.
func (e *Executor) runSandbox(ctx context.Context, in plan.Input, a plan.Action) error {
	leave, err := enter(ctx, e.sandboxes)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	if len(in.Seen.Sandboxes) > 0 {
		teller{e.cfg.Events, in.Want, ""}.normal(eventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
	}
	for _, sb := range in.Seen.Sandboxes {
		if err := e.stopSandbox(ctx, sb.ID); err != nil {
			return err
		}
	}
	n := e.cfg.Node()
	pod := known(in.Want, in.Seen, n)
	if err := e.cfg.Hooks.Prepare(ctx, pod); err != nil {
		return problem(plan.FailedMount, "%w", err)
	}
	cfg, err := e.sandboxConfig(ctx, pod, n, a.Attempt, in.Started)
	if err != nil {
		return problem(plan.FailedCreatePodSandBox, "configure the sandbox: %w", err)
	}
	handler := ""
	if c := pod.Spec.RuntimeClassName; c != nil {
		handler = *c
	}
	if _, err := e.cfg.Runtime.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler}); err != nil {
		return problem(plan.FailedCreatePodSandBox, "run the sandbox: %w", err)
	}
	return nil
}

// stopSandbox stops a sandbox and gives back its network, also when it runs no
// longer.
func (e *Executor) stopSandbox(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	if _, err := e.cfg.Runtime.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: id}); gone(err) != nil {
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
	if _, err := e.cfg.Runtime.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: id}); gone(err) != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}
