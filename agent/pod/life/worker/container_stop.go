package worker

import (
	"context"
	"fmt"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// stopContainer makes the runtime send the stop signal to a container, and kill it after the grace period. The package plan decides the
// order of the containers (stop_pod.go), gracePeriod the time, and package ctrd the signals (container_stop.go).
func (e *Executor) stopContainer(ctx context.Context, in plan.Input, a plan.Action) error {
	e.markInterrupted(ctx, in, a)
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

// markInterrupted records that an action is about to interrupt a container. The caller must call it before the container gets a signal, and
// before a preStop hook that may stop the program. Without the record, the exit code decides whether the container has completed. If the
// record cannot be stored, the container is stopped nevertheless.
func (e *Executor) markInterrupted(ctx context.Context, in plan.Input, a plan.Action) {
	if a.Interrupts == 0 {
		return
	}
	err := e.cfg.Lifecycle.MarkInterrupted(ctx, a.ID, a.Interrupts, plan.StoresInterruption(in.Want, a))
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("cannot record that a container is stopped before its work is done: if the agent ends now, the exit code decides "+
			"whether the container runs again",
			"pod", in.Want.Namespace+"/"+in.Want.Name, "uid", in.UID, "container", a.Container, "error", err)
	}
}
