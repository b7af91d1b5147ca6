package rebuild

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/lifecycle"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/edge/desired"
)

// FinalStatuses stores the final statuses of API server pods that ended while no agent was running. It must
// be used before the containers of these pods are removed. A terminal phase is final (KEP-3329), but without
// the stored status such a pod would run a second time.
type FinalStatuses struct {
	Pods []desired.Pod
	View interface {
		Pod(types.UID) plan.Observed
	}
	Store interface {
		Statuses(context.Context) (map[types.UID]*v1.PodStatus, error)
		StoreStatuses(context.Context, map[types.UID]*v1.PodStatus) error
	}
	Host  status.Host
	State string // the agent's state directory
	Now   time.Time
	Log   *slog.Logger
}

// StoreAll stores the final statuses. It also records that the containers of the other pods are about to be stopped and restarted. If it
// returns an error, the caller must not stop or remove any container.
func (e FinalStatuses) StoreAll(ctx context.Context) error {
	before, err := e.Store.Statuses(ctx)
	if err != nil {
		return err
	}
	stops, err := lifecycle.ReadInterruptions(e.State)
	if err != nil {
		return err
	}
	ends := map[types.UID]*v1.PodStatus{}
	for _, d := range e.Pods {
		uid := d.Pod.UID
		was := v1.PodStatus{}
		if s := before[uid]; s != nil {
			was = *s
		}
		in := plan.Input{UID: uid, Want: d.Pod, Admitted: true, Observed: e.View.Pod(uid), Now: e.Now}
		in.Interrupted = plan.Interruptions(in.Observed, stops.Interruption)
		if d.Source != desired.API || isTerminal(was.Phase) || d.Deleting || !plan.IsFinished(in) {
			continue
		}
		if sb, ok := in.Observed.Sandbox(); ok {
			in.Started = sb.Started
		}
		now := status.Compute(in, was, e.Host)
		if !isTerminal(now.Phase) {
			continue
		}
		ends[uid] = &now
		e.Log.Info("a pod ended while no agent ran", "pod", d.Pod.Namespace+"/"+d.Pod.Name, "uid", uid, "phase", now.Phase)
	}
	if len(ends) > 0 {
		if err := e.Store.StoreStatuses(ctx, ends); err != nil {
			return fmt.Errorf("store the final statuses of %d pods: %w", len(ends), err)
		}
	}
	for _, d := range e.Pods {
		e.markReplaced(ctx, stops, d.Pod)
	}
	return nil
}

// markReplaced records that the running containers of a pod are about to be stopped and restarted. If the agent stops before it has removed
// the containers, the next agent must not conclude from their exit codes that the pod has completed. If a record cannot be stored, the
// container is stopped nevertheless.
func (e FinalStatuses) markReplaced(ctx context.Context, stops *lifecycle.Interruptions, pod *v1.Pod) {
	for _, c := range e.View.Pod(pod.UID).Containers {
		a := plan.Action{Container: c.Name, Interrupts: plan.Replaced}
		if !c.MayRun() || !plan.StoresInterruption(pod, a) {
			continue
		}
		if err := stops.MarkInterrupted(ctx, c.ID, a.Interrupts, true); err != nil {
			e.Log.Warn("cannot record that a container is stopped in order to be restarted", "pod", pod.Namespace+"/"+pod.Name,
				"uid", pod.UID, "container", c.Name, "error", err)
		}
	}
}

func isTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
