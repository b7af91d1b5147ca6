package worker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// Lifecycle runs the lifecycle hooks of containers. It also stores the IDs of the containers whose postStart hook has
// returned, so that the hook does not run again after a restart of the agent, and the containers that were interrupted. *lifecycle.Hooks
// implements it.
type Lifecycle interface {
	// Run runs a hook until the hook or ctx has ended. Run has no timeout of its own.
	Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, h *v1.LifecycleHandler) error
	// MarkReturned records that the postStart hook of a container has returned.
	MarkReturned(id string) error
	// MarkInterrupted records that a container is about to be interrupted; see plan.Interruption. If stores is true, the record
	// survives a restart of the agent. MarkInterrupted returns within a few seconds, also if the disk does not respond.
	MarkInterrupted(ctx context.Context, id string, kind plan.Interruption, stores bool) error
	// Forget removes the records of a container.
	Forget(id string) error
}

// noLifecycle replaces a nil Lifecycle. It runs no hooks and records nothing.
type noLifecycle struct{}

func (noLifecycle) Run(context.Context, *v1.Pod, *v1.Container, string, *v1.LifecycleHandler) error {
	return nil
}
func (noLifecycle) MarkReturned(string) error { return nil }
func (noLifecycle) Forget(string) error       { return nil }
func (noLifecycle) MarkInterrupted(context.Context, string, plan.Interruption, bool) error {
	return nil
}

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

// preStop runs the preStop hook of a container that is about to be stopped. It returns at the end of the
// grace period, even if the hook is still running. If the hook fails, the container is stopped nevertheless.
func (e *Executor) preStop(ctx context.Context, in plan.Input, a plan.Action) error {
	pod, ctr := e.hookTarget(in, a)
	tell := podEventRecorder{e.cfg.Events, in.Want, a.Container}
	tell.recordNormal(eventKilling, "%s", killingMessage(in, a))
	if ctr.Lifecycle == nil || ctr.Lifecycle.PreStop == nil {
		return nil
	}
	// A sleep hook does not affect the program. If the program exits during the sleep, ctx ends, and the node has not interrupted the
	// container. After the sleep, the container is stopped even if the reason for the stop is gone. So the reason is recorded when the
	// sleep ends.
	sleeps := ctr.Lifecycle.PreStop.Exec == nil && ctr.Lifecycle.PreStop.HTTPGet == nil
	if !sleeps {
		e.markInterrupted(ctx, in, a)
	}
	last := a.Grace
	if ctr.Lifecycle.PreStop.Exec != nil {
		last += preStopExtra
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), last)
	cut := context.AfterFunc(ctx, stop)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		err := e.cfg.Lifecycle.Run(bounded, pod, ctr, a.ID, ctr.Lifecycle.PreStop)
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
			tell.recordWarning(eventFailedPreStopHook, "PreStopHook failed") // without the output, which may contain secrets
			e.cfg.Log.Warn("preStop hook failed", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "container", ctr.Name, "error", err)
		}
	case <-ctx.Done():
	case <-over.C:
		cut() // from here on, the end of ctx does not cancel the hook; see lingering
	}
	if sleeps && ctx.Err() == nil {
		e.markInterrupted(ctx, in, a)
	}
	return nil
}

// preStopExtra is the maximum time for which the command of a preStop hook continues after the grace period.
// At the end of the grace period the container gets its stop signal, and the command ends together with the
// container. A kubelet does the same.
const preStopExtra = 10 * time.Second

// returnedHooks returns the IDs of the containers whose postStart hook has returned.
func returnedHooks(seen plan.Observed, returned func(string) bool) (out map[string]bool) {
	for _, c := range seen.Containers {
		if c.PostStart && returned(c.ID) {
			if out == nil {
				out = map[string]bool{}
			}
			out[c.ID] = true
		}
	}
	return out
}
