package podstate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Summary is the content of a pod's row.
type Summary struct{ Ready, Status, Restarts string }

// FirstSeen returns the time at which the pod was first seen on this node.
func FirstSeen(p *v1.Pod) time.Time {
	if t := p.CreationTimestamp; !t.IsZero() {
		return t.Time
	}
	if t := p.Status.StartTime; t != nil {
		return t.Time
	}
	t, _ := time.Parse(time.RFC3339Nano, p.Annotations[keys.ConfigSeen])
	return t
}

// Summarize describes a pod in the same way as kubectl get pods. The status in the summary is a reason, such as
// CrashLoopBackOff, Init:0/1 or Completed. It is not the pod's phase.
func Summarize(p *v1.Pod, now time.Time) Summary {
	status := cmp.Or(p.Status.Reason, string(p.Status.Phase))
	if status == "" {
		status = string(v1.PodPending)
	}
	var restarts int32
	var restarted time.Time
	ready := 0
	count := func(c *v1.ContainerStatus) {
		restarts += c.RestartCount
		if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(restarted) {
			restarted = t.FinishedAt.Time
		}
	}
	for i := range p.Status.InitContainerStatuses {
		count(&p.Status.InitContainerStatuses[i])
	}
	if s := initStatus(p); s != "" {
		status = s
	} else {
		restarts, restarted = 0, time.Time{}
		running := false
		for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
			c := &p.Status.ContainerStatuses[i]
			count(c)
			if s := stopReason(c.State); s != "" {
				status = s
			}
			if c.Ready && c.State.Running != nil {
				running = true
				ready++
			}
		}
		if status == "Completed" && running {
			status = "NotReady"
			if podspec.IsReady(&p.Status) {
				status = "Running"
			}
		}
	}
	if p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		status = "Terminating"
	}
	s := Summary{Ready: fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), Status: status, Restarts: fmt.Sprint(restarts)}
	if restarts > 0 && !restarted.IsZero() {
		s.Restarts += fmt.Sprintf(" (%s ago)", api.FormatAge(restarted, now))
	}
	return s
}

// initStatus describes the init container for which the pod waits, or returns "" if there is none.
func initStatus(p *v1.Pod) string {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		switch t := c.State.Terminated; {
		case t != nil && t.ExitCode == 0, c.Started != nil && *c.Started && c.State.Running != nil && isSidecar(p, c.Name):
			continue
		case t != nil:
			return "Init:" + stopReason(c.State)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			return "Init:" + c.State.Waiting.Reason
		}
		return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
	}
	return ""
}

// isSidecar reports whether an init container is a sidecar.
func isSidecar(p *v1.Pod, name string) bool {
	kind, c := podspec.Find(&p.Spec, name)
	return c != nil && kind == podspec.Sidecar
}

// stopReason returns the reason why a container is not running. It returns "" if the container is running or the
// reason is unknown.
func stopReason(s v1.ContainerState) string {
	switch t := s.Terminated; {
	case s.Waiting != nil:
		return s.Waiting.Reason
	case t == nil:
		return ""
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

// StatusColour returns the colour of a pod's status.
func StatusColour(status string) terminal.Colour {
	switch {
	case status == "Running" || status == "Completed" || status == "Succeeded":
		return terminal.Green
	case status == "Pending" || status == "Terminating" || status == "ContainerCreating" ||
		status == "PodInitializing" || status == "NotReady" ||
		strings.HasPrefix(status, "Init:") && strings.Contains(status, "/"):
		return terminal.Yellow
	}
	return terminal.Red
}

// ByUID returns the pod of the list with the UID of the given pod, or nil.
func ByUID(pods []v1.Pod, pod *v1.Pod) *v1.Pod {
	for i := range pods {
		if pods[i].UID == pod.UID {
			return &pods[i]
		}
	}
	return nil
}
