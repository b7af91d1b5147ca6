package status

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// A pod counts as stuck if its start takes longer than stuckPending, or its end longer than
// stuckEnding.
const (
	stuckPending = 5 * time.Minute
	stuckEnding  = time.Minute // in addition to its grace period
)

// maxTroubles is the maximum number of troubles in a status.
const maxTroubles = 50

// findTroubles returns the number of stuck pods, and a list of the pods that need attention. These are failed pods,
// and stuck pods that cannot start or do not end.
func findTroubles(pods []*v1.Pod, ports map[types.UID][]string, now time.Time) (stuck int, list []api.Trouble) {
	for _, p := range pods {
		found := troublesOf(p, now)
		if len(found) > 0 && p.Status.Phase != v1.PodFailed {
			stuck++
		}
		if !podlist.IsEnding(p) {
			for _, text := range ports[p.UID] {
				found = append(found, api.Trouble{Reason: hostPortConflict, Message: text, Command: "islet doctor"})
			}
		}
		for _, t := range found {
			t.Namespace, t.Name = p.Namespace, p.Name
			if t.Command == "" {
				t.Command = "islet describe " + podArgument(p)
			}
			list = append(list, t)
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.SliceStable(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].Namespace, list[j].Namespace), cmp.Compare(list[i].Name, list[j].Name)) < 0
	})
	return stuck, list
}

// hostPortConflict is the reason for a trouble with a host port. It is also the reason in the event at the start of the pod.
const hostPortConflict = "HostPortConflict"

func troublesOf(p *v1.Pod, now time.Time) (list []api.Trouble) {
	switch phase := p.Status.Phase; {
	case phase == v1.PodSucceeded:
		return nil
	case p.DeletionTimestamp != nil:
		since := p.DeletionTimestamp.Time
		var grace time.Duration
		if s := p.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		if !since.IsZero() && now.Sub(since) > grace+stuckEnding {
			list = append(list, api.Trouble{Reason: "Terminating", Message: fmt.Sprintf("for %s", now.Sub(since).Round(time.Second))})
		}
		return list
	case phase == v1.PodFailed:
		return []api.Trouble{failureOf(p)}
	}
	waits := ""
	for st := range podspec.PermanentStatuses(&p.Status) {
		w := st.State.Waiting
		switch {
		case w == nil:
		case cannotStart(w.Reason):
			list = append(list, waitingTrouble(p, st))
		case waits == "" && w.Message != "":
			waits = fmt.Sprintf("; container %s: %s: %s", st.Name, w.Reason, w.Message)
		}
	}
	if started := p.Status.StartTime; len(list) == 0 && p.Status.Phase != v1.PodRunning && started != nil &&
		now.Sub(started.Time) > stuckPending {
		long := now.Sub(started.Time).Round(time.Second)
		list = append(list, api.Trouble{Reason: "Pending", Message: fmt.Sprintf("for %s", long) + waits})
	}
	return list
}

// waitingTrouble returns the trouble of a container that cannot start. If the container has run before, the trouble contains the
// exit code and the command that shows the log.
func waitingTrouble(p *v1.Pod, st *v1.ContainerStatus) api.Trouble {
	t := api.Trouble{Container: st.Name, Reason: st.State.Waiting.Reason, Message: st.State.Waiting.Message}
	if last := st.LastTerminationState.Terminated; last != nil {
		t.ExitCode, t.Command = &last.ExitCode, logCommand(p, st.Name)
		if st.State.Waiting.Reason == "CrashLoopBackOff" {
			t.Message = fmt.Sprintf("exit code %d (%s), %s, the next start is delayed", last.ExitCode,
				cmp.Or(last.Reason, "Error"), api.Pluralize(int(st.RestartCount), "restart"))
		}
	}
	return t
}

// failureOf returns the trouble of a failed pod. The trouble is about the first container with an exit code other than 0, unless the
// status of the pod has a message.
func failureOf(p *v1.Pod) api.Trouble {
	t := api.Trouble{Reason: cmp.Or(p.Status.Reason, "Failed"), Message: p.Status.Message}
	for st := range podspec.PermanentStatuses(&p.Status) {
		if e := st.State.Terminated; e != nil && e.ExitCode != 0 {
			if t.Message == "" {
				t.Message = fmt.Sprintf("container %s ended with exit code %d (%s)", st.Name, e.ExitCode, cmp.Or(e.Reason, "Error"))
			}
			if e.ContainerID != "" {
				t.ExitCode, t.Command = &e.ExitCode, logCommand(p, st.Name)
			}
			break
		}
	}
	return t
}

// podArgument returns a pod's name for the commands of islet.
func podArgument(p *v1.Pod) string {
	if p.Namespace == v1.NamespaceDefault {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// logCommand returns the command that shows the log of a container.
func logCommand(p *v1.Pod, container string) string {
	if len(p.Spec.Containers)+len(p.Spec.InitContainers)+len(p.Spec.EphemeralContainers) == 1 {
		return "islet logs " + podArgument(p)
	}
	return "islet logs " + podArgument(p) + " " + container
}

// cannotStart reports whether a waiting container with the given reason counts as stuck.
func cannotStart(reason string) bool {
	return slices.Contains([]string{"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull",
		"InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError",
		"RunContainerError", "PostStartHookError"}, reason)
}
