package worker

import (
	"context"
	"fmt"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// stopContainer makes the runtime send the stop signal to a container, and kill it after the grace period.
// The package plan decides the order of the containers (teardown.go). For the grace period see gracePeriod.
func (e *Executor) stopContainer(ctx context.Context, in plan.Input, a plan.Action) error {
	if _, told := in.PreStopped[a.ID]; in.Want != nil && !told {
		podEventRecorder{e.cfg.Events, in.Want, a.Container}.recordNormal(eventKilling, "%s", killingMessage(in, a))
	}
	ctx, stop := context.WithTimeout(ctx, a.Grace+callTimeout)
	defer stop()
	seconds := int64((a.Grace + time.Second - 1) / time.Second)
	_, err := e.cfg.Runtime.StopContainer(ctx, &api.StopContainerRequest{ContainerId: a.ID, Timeout: seconds})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("stop container %s (%s): %w", a.Container, a.ID, err)
	}
	return nil
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
	return nil
}

// preStopExtra is the maximum time for which the command of a preStop hook continues after the grace period.
// At the end of the grace period the container gets its stop signal, and the command ends together with the
// container. A kubelet does the same.
const preStopExtra = 10 * time.Second
