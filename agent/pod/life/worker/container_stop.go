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
