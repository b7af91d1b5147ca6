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

// Lifecycle runs the lifecycle hooks of containers, and remembers over restarts of the
// agent in which the postStart hook has returned. *lifecycle.Hooks is one.
type Lifecycle interface {
	// Run runs a hook until it or ctx has ended. It may wait for as long as it likes.
	Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, h *v1.LifecycleHandler) error
	// Returned notes that the postStart hook of a container has returned.
	Returned(id string) error
	// Forget forgets a container.
	Forget(id string) error
}

// noLifecycle is for who has no hooks. No container waits for one then.
type noLifecycle struct{}

func (noLifecycle) Run(context.Context, *v1.Pod, *v1.Container, string, *v1.LifecycleHandler) error {
	return nil
}
func (noLifecycle) Returned(string) error { return nil }
func (noLifecycle) Forget(string) error   { return nil }

// postStart runs the hook of a container that has just started. If it fails the plan
// stops the container.
func (e *Executor) postStart(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hooked(in, a)
	if l := ctr.Lifecycle; l != nil && l.PostStart != nil {
		if err := e.cfg.Hooking.Run(ctx, pod, ctr, a.ID, l.PostStart); err != nil {
			return problem(plan.PostStartHookError, "%w", err)
		}
	}
	if err := e.cfg.Hooking.Returned(a.ID); err != nil { // it runs once more after a restart of the agent
		e.cfg.Log.Warn("that a postStart hook has returned could not be noted", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
	}
	return nil
}

// preStop runs the hook of a container that is about to be stopped, for as long as the
// container may take to stop. How it ends changes nothing.
func (e *Executor) preStop(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hooked(in, a)
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
		if bounded.Err() != nil { // it did not fail, its time was over
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
		cut() // nobody waits for it any more
	}
	return nil
}

// lingering is how long a command may go on whose time as a preStop hook is over: the
// container gets its signal then, and the command ends with it, as under a kubelet.
const lingering = 10 * time.Second

// hooked is the container of a hook, and its pod as the hook may know it.
func (e *Executor) hooked(in plan.Input, a plan.Action) (*v1.Pod, *v1.Container) {
	_, ctr := podspec.Find(&in.Want.Spec, a.Container)
	if ctr == nil {
		ctr = &v1.Container{Name: a.Container}
	}
	return known(in.Want, in.Seen, e.cfg.Node()), ctr
}

// target is the ID of the container whose processes an ephemeral container asks to see;
// empty: it asks for none.
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
