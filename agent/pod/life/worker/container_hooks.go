package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// Lifecycle runs the lifecycle hooks of containers. It also stores the IDs of the containers whose postStart hook has
// returned, so that the hook does not run again after a restart of the agent. *lifecycle.Hooks implements it.
type Lifecycle interface {
	// Run runs a hook until it or ctx has ended. It has no timeout of its own.
	Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, h *v1.LifecycleHandler) error
	// Returned records that the postStart hook of a container has returned.
	Returned(id string) error
	// Forget removes the record of a container.
	Forget(id string) error
}

// noLifecycle replaces a nil Lifecycle. It runs no hooks.
type noLifecycle struct{}

func (noLifecycle) Run(context.Context, *v1.Pod, *v1.Container, string, *v1.LifecycleHandler) error {
	return nil
}
func (noLifecycle) Returned(string) error { return nil }
func (noLifecycle) Forget(string) error   { return nil }

// postStart runs the postStart hook of a container. If the hook fails, the plan stops the container.
func (e *Executor) postStart(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hookTarget(in, a)
	if l := ctr.Lifecycle; l != nil && l.PostStart != nil {
		if err := e.cfg.Hooking.Run(ctx, pod, ctr, a.ID, l.PostStart); err != nil {
			return problem(plan.PostStartHookError, "%w", err)
		}
	}
	if err := e.cfg.Hooking.Returned(a.ID); err != nil {
		e.cfg.Log.Warn("cannot record that a postStart hook returned: it runs again when the agent restarts",
			"pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
	}
	return nil
}

// preStop runs the preStop hook of a container that is about to be stopped. It returns when the grace period is over, even
// if the hook has not returned. If the hook fails, the container is stopped nevertheless.
func (e *Executor) preStop(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hookTarget(in, a)
	tell := teller{e.cfg.Events, in.Want, a.Container}
	tell.normal(eventKilling, "%s", killing(in, a))
	if ctr.Lifecycle == nil || ctr.Lifecycle.PreStop == nil {
		return nil
	}
	last := a.Grace
	if ctr.Lifecycle.PreStop.Exec != nil {
		last += lingering
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), last)
	cut := context.AfterFunc(ctx, stop)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		err := e.cfg.Hooking.Run(bounded, pod, ctr, a.ID, ctr.Lifecycle.PreStop)
		if bounded.Err() != nil { // the hook was cancelled, it did not fail
			err = nil
		}
		ended <- err
	}()
	over := time.NewTimer(a.Grace)
	defer over.Stop()
	select {
	case err := <-ended:
		if err != nil {
			tell.warning(eventFailedPreStopHook, "PreStopHook failed") // without the output, which may contain secrets
			e.cfg.Log.Warn("preStop hook failed", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
		}
	case <-ctx.Done():
	case <-over.C:
		cut() // from here on, the end of ctx does not cancel the hook; see lingering
	}
	return nil
}

// lingering is how long the command of a preStop hook may continue after the grace period. The container gets its stop
// signal when the grace period is over, and the command ends with the container. A kubelet does the same.
const lingering = 10 * time.Second

// hookTarget returns the pod of a hook, with its addresses, and the container.
func (e *Executor) hookTarget(in plan.Input, a plan.Action) (*v1.Pod, *v1.Container) {
	_, ctr := podspec.Find(&in.Want.Spec, a.Container)
	if ctr == nil {
		ctr = &v1.Container{Name: a.Container}
	}
	return withAddresses(in.Want, in.Seen, e.cfg.Node()), ctr
}

// targetID returns the ID of the container whose processes an ephemeral container sees. It is empty if the container has
// no targetContainerName.
func targetID(in plan.Input, name string) (string, error) {
	i := slices.IndexFunc(in.Want.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == name })
	if i < 0 || in.Want.Spec.EphemeralContainers[i].TargetContainerName == "" {
		return "", nil
	}
	wanted := in.Want.Spec.EphemeralContainers[i].TargetContainerName
	c, ok := in.Seen.Last(wanted)
	if !ok {
		return "", fmt.Errorf("unable to find target container %v", wanted)
	}
	return c.ID, nil
}
