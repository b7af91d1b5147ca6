package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/podspec"
)

// Reasons of events. The method recordFailed selects the reason for a failed action.
const (
	eventPulling           = "Pulling"
	eventPulled            = "Pulled"
	eventCreated           = "Created"
	eventStarted           = "Started"
	eventKilling           = "Killing"
	eventFailed            = "Failed"
	eventBackOff           = "BackOff"
	eventInspectFailed     = "InspectFailed"
	eventErrImageNeverPull = "ErrImageNeverPull"
	eventNoPullSecret      = "FailedToRetrieveImagePullSecret"
	eventSandboxChanged    = "SandboxChanged"
	eventFailedKillPod     = "FailedKillPod"
	eventFailedMapVolume   = "FailedMapVolume"

	eventFailedPostStartHook = "FailedPostStartHook"
	eventFailedPreStopHook   = "FailedPreStopHook"
)

// podEventRecorder records events about one pod, or about one of its containers.
type podEventRecorder struct {
	events    event.Sink
	pod       *v1.Pod
	container string
}

func (t podEventRecorder) recordNormal(reason, format string, args ...any) {
	t.events.Pod(t.pod, t.container, v1.EventTypeNormal, reason, fmt.Sprintf(format, args...))
}

func (t podEventRecorder) recordWarning(reason, format string, args ...any) {
	t.events.Pod(t.pod, t.container, v1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

// recordFailed records the event about a failed action, unless the action was cancelled. In the message it
// replaces the container's ID with the container's name. Otherwise each attempt would have a different message.
func (e *Executor) recordFailed(ctx context.Context, in plan.Input, a plan.Action, err error) {
	if in.Want == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	tell := podEventRecorder{e.cfg.Events, in.Want, a.Container}
	why := &Problem{Err: err}
	errors.As(err, &why)
	message := err.Error()
	if a.ID != "" {
		message = strings.ReplaceAll(message, a.ID, a.Container)
	}
	switch a.Op {
	case plan.RunSandbox:
		switch why.Reason {
		case plan.FailedMount:
			tell.recordWarning(mountReason(err), "%s", message)
		case plan.FailedPrepareDynamicResources, plan.NetworkNotReady:
			tell.recordWarning(why.Reason, "%s", message)
		case plan.FailedCreatePodSandBox:
			tell.recordWarning(plan.FailedCreatePodSandBox, "Failed to create pod sandbox: %s", message)
		default:
			tell.recordWarning(eventFailedKillPod, "error killing pod: %s", message)
		}
	case plan.StartContainer:
		switch why.Reason {
		case plan.ErrImagePull, plan.ErrImageNeverPull, plan.InvalidImageName, plan.ImageInspectError:
			message = why.Reason // another event has the details
		}
		tell.recordWarning(eventFailed, "Error: %s", message)
	case plan.PostStart:
		tell.recordWarning(eventFailedPostStartHook, "PostStartHook failed") // without the output, which may contain secrets
	case plan.StopContainer, plan.StopSandbox:
		tell.container = ""
		tell.recordWarning(eventFailedKillPod, "error killing pod: %s", message)
	}
}

// mountReason returns the reason for a volume that could not be mounted: FailedMapVolume for a block volume,
// otherwise FailedMount.
func mountReason(err error) string {
	if own, ok := errors.AsType[interface {
		error
		EventReason() string
	}](err); ok && own.EventReason() == eventFailedMapVolume {
		return eventFailedMapVolume
	}
	return plan.FailedMount
}

// killingMessage returns the message of the event Killing, which says why a container is stopped.
func killingMessage(in plan.Input, a plan.Action) string {
	h := in.Health[a.ID]
	switch ends := in.Deleting || in.End != nil; {
	case a.Hash != "":
		return fmt.Sprintf("Container %s definition changed, will be restarted", a.Container)
	case in.Stale != "" && !ends:
		return fmt.Sprintf("Stopping container %s: the node's pod network has changed", a.Container)
	case !ends && in.Failed[plan.Key{Container: a.Container, Op: plan.PostStart}].ID == a.ID:
		return eventFailedPostStartHook
	case !ends && plan.EarlierRoundRuns(in):
		return "killing"
	case a.Interrupts == plan.Replaced && !h.Unhealthy && !ends && in.Requested[a.Container].ID != a.ID: // the remaining reason is a resize
		return fmt.Sprintf("Container %s resize requires restart", a.Container)
	case ends || !h.Unhealthy:
		return "Stopping container " + a.Container
	case !h.Started:
		return probeFailed(in.Want, a.Container, "startup")
	}
	return probeFailed(in.Want, a.Container, "liveness")
}

// probeFailed returns the message about a container that is stopped because a probe failed. A sidecar is
// always restarted, but like a kubelet's message, the message for a sidecar does not say so.
func probeFailed(pod *v1.Pod, container, probe string) string {
	what, then := "Container", ""
	switch kind, ctr := podspec.Find(&pod.Spec, container); {
	case kind == podspec.Sidecar:
		what = "Init container"
	case ctr != nil && plan.RestartsUnhealthy(pod, ctr):
		then = ", will be restarted"
	}
	return fmt.Sprintf("%s %s failed %s probe%s", what, container, probe, then)
}

// recordNotices records the events for the notices of the plan. It does not repeat an event for the same notice.
func (w *worker) recordNotices(pod *v1.Pod, notices []plan.Notice) {
	for _, n := range notices {
		if w.life.lastNotices[n.Container] == n {
			continue
		}
		w.life.lastNotices[n.Container] = n
		tell := podEventRecorder{w.set.cfg.Events, pod, n.Container}
		switch n.Reason {
		case plan.CrashLoopBackOff:
			tell.recordWarning(eventBackOff, "Back-off restarting failed container %s in pod %s_%s(%s)",
				n.Container, pod.Name, pod.Namespace, pod.UID)
		case plan.ImagePullBackOff:
			_, ctr := podspec.Find(&pod.Spec, n.Container)
			tell.recordNormal(eventBackOff, "Back-off pulling image %q", ctr.Image)
			tell.recordWarning(eventFailed, "Error: %s", plan.ImagePullBackOff)
		case plan.DeadlineExceeded:
			tell.recordNormal(plan.DeadlineExceeded, "Pod was active on the node longer than the specified deadline")
		}
	}
}
