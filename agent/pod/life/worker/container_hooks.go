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

// Lifecycle runs the lifecycle hooks of containers, and stores in which containers the postStart hook has
// returned, so that an agent that starts later knows it. *lifecycle.Hooks is one.
type Lifecycle interface {
	// Run runs a hook until it or ctx has ended. It may block for any time.
	Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, h *v1.LifecycleHandler) error
	// Returned notes that the postStart hook of a container has returned.
	Returned(id string) error
	// Forget forgets a container.
	Forget(id string) error
}

// noLifecycle is the default of a nil Lifecycle: no container waits for a hook.
type noLifecycle struct{}

func (noLifecycle) Run(context.Context, *v1.Pod, *v1.Container, string, *v1.LifecycleHandler) error {
	return nil
}
func (noLifecycle) Returned(string) error { return nil }
func (noLifecycle) Forget(string) error   { return nil }

// postStart runs the hook of a container that has just started. If the hook fails, the plan stops the container.
func (e *Executor) postStart(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hookTarget(in, a)
	if l := ctr.Lifecycle; l != nil && l.PostStart != nil {
		if err := e.cfg.Hooking.Run(ctx, pod, ctr, a.ID, l.PostStart); err != nil {
			return problem(plan.PostStartHookError, "%w", err)
		}
	}
	if err := e.cfg.Hooking.Returned(a.ID); err != nil {
		e.cfg.Log.Warn("the end of a postStart hook could not be stored: it runs once more when the agent restarts",
			"pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
	}
	return nil
}

// preStop runs the hook of a container that is about to be stopped, at most for the time in which the container
// has to stop. The container is stopped also if the hook fails.
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
		if bounded.Err() != nil { // the hook did not fail, its time was over
			err = nil
		}
		ended <- err
	}()
	over := time.NewTimer(a.Grace)
	defer over.Stop()
	select {
	case err := <-ended:
		if err != nil {
			tell.warning(eventFailedPreStopHook, "PreStopHook failed") // its output may hold secrets
			e.cfg.Log.Warn("preStop hook failed", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
		}
	case <-ctx.Done():
	case <-over.C:
		cut() // the hook may go on: see lingering
	}
	return nil
}

// lingering is how long the command of a preStop hook may go on after its time is over. The container gets its stop
// signal at that time, and the command ends with the container, as under a kubelet.
const lingering = 10 * time.Second

// hookTarget returns the container of a hook, and its pod with the addresses.
func (e *Executor) hookTarget(in plan.Input, a plan.Action) (*v1.Pod, *v1.Container) {
	_, ctr := podspec.Find(&in.Want.Spec, a.Container)
	if ctr == nil {
		ctr = &v1.Container{Name: a.Container}
	}
	return withAddresses(in.Want, in.Seen, e.cfg.Node()), ctr
}

// target returns the ID of the container whose processes an ephemeral container sees; empty: it names none.
func target(in plan.Input, name string) (string, error) {
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
