package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/podspec"
)

// startContainer pulls the image if necessary, and then configures, creates and starts one attempt of a container. It
// acquires a slot only after the pull and the hooks.
func (e *Executor) startContainer(ctx context.Context, in plan.Input, a plan.Action) error {
	_, ctr := podspec.Find(&in.Want.Spec, a.Container)
	sb, _ := in.Observed.Sandbox()
	if ctr == nil {
		return fmt.Errorf("the pod has no container %q", a.Container)
	}
	image, ref, err := e.images.ensureImage(ctx, in.Want, ctr)
	if err != nil {
		return err
	}
	if err := e.images.ensureVolumes(ctx, in.Want, ctr); err != nil {
		return err
	}
	n := e.cfg.Node()
	pod := withAddresses(in.Want, in.Observed, n)
	if err := e.preparePod(ctx, pod, ctr); err != nil {
		return newProblem(plan.CreateContainerConfigError, "prepare the pod: %w", err)
	}
	release, err := acquireSlot(ctx, e.containerSlots, startSlotTime)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()

	n = e.cfg.Node() // the node may have got an address during the preparation
	pod = withAddresses(in.Want, in.Observed, n)
	sandbox, err := e.sandboxConfig(ctx, pod, n, sb.Attempt, in.Started)
	if err != nil {
		return newProblem(plan.CreateContainerConfigError, "configure the sandbox: %w", err)
	}
	target, err := targetID(in, ctr.Name)
	if err != nil {
		return newProblem(plan.CreateContainerConfigError, "%w", err)
	}
	number := a.Attempt
	if _, known := in.Observed.Newest(ctr.Name); !known {
		number = attemptAfterLogs(ctx, filepath.Join(sandbox.LogDirectory, translate.LogPath(ctr.Name, a.Attempt)), a.Attempt)
	}
	cfg, err := e.containerConfig(ctx, pod, ctr, n, translate.Attempt{
		Number: number, Streak: a.Streak, Round: a.Round, Hook: e.runsHooks, Target: target, Image: image, Ref: ref,
		PreviousEnv: e.environmentBefore(pod, ctr.Name),
	})
	if err != nil {
		return newProblem(plan.CreateContainerConfigError, "%w", err)
	}
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, ctr.Name), 0o755); err != nil {
		return newProblem(plan.CreateContainerError, "create the log directory: %w", err)
	}
	made, err := e.cfg.Runtime.CreateContainer(ctx, &api.CreateContainerRequest{
		PodSandboxId: sb.ID, Config: cfg, SandboxConfig: sandbox,
	})
	if err != nil {
		return newProblem(plan.CreateContainerError, "%w", err) // the runtime names the container
	}
	tell := podEventRecorder{e.cfg.Events, in.Want, ctr.Name}
	tell.recordNormal(eventCreated, "Container created")
	if _, err := e.cfg.Runtime.StartContainer(ctx, &api.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return newProblem(plan.RunContainerError, "%w", err)
	}
	tell.recordNormal(eventStarted, "Container started")
	if err := e.cfg.Links.Link(pod, ctr.Name, made.ContainerId, filepath.Join(sandbox.LogDirectory, cfg.LogPath)); err != nil {
		e.cfg.Log.Warn("cannot create the link to a container's log, so log shippers may not find it",
			"pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
	}
	return nil
}

// environmentBefore returns a function for translate.Attempt.PreviousEnv. The function returns the
// environment that the container had before the database was lost, or nil if it is unknown.
func (e *Executor) environmentBefore(pod *v1.Pod, name string) func() []*api.KeyValue {
	return func() []*api.KeyValue {
		kept, ok := e.cfg.Objects.(interface {
			EnvironmentBefore(types.UID, string) []*api.KeyValue
		})
		if !ok {
			return nil
		}
		env := kept.EnvironmentBefore(pod.UID, name)
		if env != nil {
			e.cfg.Log.Warn("the API server does not respond, starting a container with its former environment",
				"pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", name)
		}
		return env
	}
}

func (e *Executor) containerConfig(
	ctx context.Context, pod *v1.Pod, ctr *v1.Container, n translate.Node, a translate.Attempt,
) (*api.ContainerConfig, error) {
	cfg, expanded, err := translate.Container(pod, ctr, n, a, e.cfg.Objects, e.cfg.Files)
	if err != nil {
		return nil, err
	}
	return cfg, e.cfg.Hooks.Container(ctx, pod, expanded, cfg)
}
