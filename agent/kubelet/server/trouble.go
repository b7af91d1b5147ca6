package server

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// A pod counts as stuck if its start takes longer than stuckPending, or its end longer than
// stuckEnding.
const (
	stuckPending = 5 * time.Minute
	stuckEnding  = time.Minute // in addition to its grace period
)

// maxTroubles is the maximum number of troubled pods in a status.
const maxTroubles = 50

// findTroubles returns the number of stuck pods, and a list of the pods that need attention. These are failed pods,
// and stuck pods that cannot start or do not end.
func findTroubles(pods []*v1.Pod, now time.Time) (stuck int, list []api.Trouble) {
	for _, p := range pods {
		t, bad := troubleOf(p, now)
		if !bad {
			continue
		}
		if p.Status.Phase != v1.PodFailed {
			stuck++
		}
		list = append(list, t)
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].Namespace, list[j].Namespace), cmp.Compare(list[i].Name, list[j].Name)) < 0
	})
	return stuck, list[:min(len(list), maxTroubles)]
}

func troubleOf(p *v1.Pod, now time.Time) (t api.Trouble, bad bool) {
	t = api.Trouble{Namespace: p.Namespace, Name: p.Name}
	switch phase := p.Status.Phase; {
	case phase == v1.PodSucceeded:
		return t, false
	case p.DeletionTimestamp != nil:
		since := p.DeletionTimestamp.Time
		var grace time.Duration
		if s := p.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		t.Reason, t.Message = "Terminating", fmt.Sprintf("for %s", now.Sub(since).Round(time.Second))
		return t, !since.IsZero() && now.Sub(since) > grace+stuckEnding
	case phase == v1.PodFailed:
		t.Reason, t.Message = cmp.Or(p.Status.Reason, "Failed"), p.Status.Message
		if t.Message == "" {
			t.Message = exitText(p)
		}
		return t, true
	}
	for st := range podspec.Statuses(&p.Status) {
		if w := st.State.Waiting; w != nil && cannotStart(w.Reason) {
			t.Container, t.Reason, t.Message = st.Name, w.Reason, w.Message
			return t, true
		}
	}
	if started := p.Status.StartTime; p.Status.Phase != v1.PodRunning && started != nil && now.Sub(started.Time) > stuckPending {
		t.Reason, t.Message = "Pending", fmt.Sprintf("for %s", now.Sub(started.Time).Round(time.Second))
		return t, true
	}
	return t, false
}

// cannotStart reports whether a waiting container with the given reason counts as stuck.
func cannotStart(reason string) bool {
	return slices.Contains([]string{"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull",
		"InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError",
		"RunContainerError", "PostStartHookError"}, reason)
}

// exitText describes how a container of a failed pod ended. It returns the first container with an exit code other than 0.
func exitText(p *v1.Pod) string {
	for st := range podspec.Statuses(&p.Status) {
		if e := st.State.Terminated; e != nil && e.ExitCode != 0 {
			return fmt.Sprintf("container %s ended with exit code %d (%s)", st.Name, e.ExitCode, cmp.Or(e.Reason, "Error"))
		}
	}
	return ""
}
