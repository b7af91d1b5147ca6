package worker

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// Lifecycle runs the lifecycle hooks of containers. It also stores the IDs of the containers whose postStart hook has
// returned, so that the hook does not run again after a restart of the agent. *lifecycle.Hooks implements it.
type Lifecycle interface {
	// Run runs a hook until the hook or ctx has ended. Run has no timeout of its own.
	Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, h *v1.LifecycleHandler) error
	// MarkReturned records that the postStart hook of a container has returned.
	MarkReturned(id string) error
	// Forget removes the record of a container.
	Forget(id string) error
}

// noLifecycle replaces a nil Lifecycle. It runs no hooks.
type noLifecycle struct{}

func (noLifecycle) Run(context.Context, *v1.Pod, *v1.Container, string, *v1.LifecycleHandler) error {
	return nil
}
func (noLifecycle) MarkReturned(string) error { return nil }
func (noLifecycle) Forget(string) error       { return nil }

// postStart runs the postStart hook of a container. If the hook fails, the plan stops the container.
func (e *Executor) postStart(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hookTarget(in, a)
	if l := ctr.Lifecycle; l != nil && l.PostStart != nil {
		if err := e.cfg.Lifecycle.Run(ctx, pod, ctr, a.ID, l.PostStart); err != nil {
			return newProblem(plan.PostStartHookError, "%w", err)
		}
	}
	if err := e.cfg.Lifecycle.MarkReturned(a.ID); err != nil {
		e.cfg.Log.Warn("cannot record that a postStart hook returned: it runs again when the agent restarts",
			"pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
	}
	return nil
}

// hookTarget returns the pod of a hook, with its addresses, and the container.
func (e *Executor) hookTarget(in plan.Input, a plan.Action) (*v1.Pod, *v1.Container) {
	_, ctr := podspec.Find(&in.Want.Spec, a.Container)
	if ctr == nil {
		ctr = &v1.Container{Name: a.Container}
	}
	return withAddresses(in.Want, in.Observed, e.cfg.Node()), ctr
}
