package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// A verdict is the result of a judge.
type verdict int

const (
	undecided verdict = iota
	good
	bad
)

// A judge decides whether the bundle on trial is kept. It does no I/O.
type judge struct {
	healthyFor time.Duration
	deadline   time.Time
	healthy    time.Time // since when all pods are Ready without interruption
}

// decide returns the verdict at a time. The parameter unready is the result of the function unready.
func (j *judge) decide(unready []string, now time.Time) (verdict, string) {
	switch {
	case len(unready) > 0:
		j.healthy = time.Time{}
	case j.healthy.IsZero():
		j.healthy = now
	}
	if !j.healthy.IsZero() && now.Sub(j.healthy) >= j.healthyFor {
		return good, ""
	}
	if now.Before(j.deadline) {
		return undecided, ""
	}
	if len(unready) == 0 {
		return bad, fmt.Sprintf("the pods have not been Ready for %s before the deadline", j.healthyFor)
	}
	return bad, "not Ready before the deadline: " + shorten(unready)
}

// shorten returns the first pods of a list, and the number of the others.
func shorten(pods []string) string {
	more := ""
	if len(pods) > maxShown {
		more = fmt.Sprintf(", and %d more", len(pods)-maxShown)
	}
	return strings.Join(pods[:min(len(pods), maxShown)], ", ") + more
}

// maxShown is the number of pods that a message names.
const maxShown = 5

// podName is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func podName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// chooseMust returns the names of the pods that must be Ready for a new bundle: the pods that are Ready now, and the new pods of the
// bundle. A pod of the bundle in force that the new one does not have is not required. A pod that is not Ready now may have been so for
// long, and is then not the fault of the new bundle. The list unready has the names of these pods. The pods in the list starting were Ready
// shortly before.
func chooseMust(now, next []*v1.Pod, starting []string) (must, unready []string) {
	known := map[string]bool{}
	for _, p := range now {
		if p.DeletionTimestamp != nil { // its successor is new
			continue
		}
		name := podName(p)
		known[name] = true
		leaves := p.Annotations[keys.ConfigSource] == keys.SourceBundle &&
			!slices.ContainsFunc(next, func(n *v1.Pod) bool { return podName(n) == name })
		switch ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; {
		case leaves:
		case podspec.IsReady(&p.Status):
			must = append(must, name)
		case !ended:
			unready = append(unready, name)
		}
	}
	for _, p := range next {
		if !known[podName(p)] || slices.Contains(starting, podName(p)) {
			must = append(must, podName(p))
		}
	}
	slices.Sort(must)
	slices.Sort(unready)
	return slices.Compact(must), slices.DeleteFunc(unready, func(name string) bool { return slices.Contains(must, name) })
}

// unready returns why the required pods are not Ready, each with its name. A pod of the bundle must have the UID that the bundle gives it.
// A pod of another source that has ended does not count.
func unready(must []string, wanted map[string]types.UID, pods []*v1.Pod) (list []string) {
	for _, name := range must {
		uid, ofBundle := wanted[name]
		at := slices.IndexFunc(pods, func(p *v1.Pod) bool { return podName(p) == name && (!ofBundle || p.UID == uid) })
		switch {
		case at < 0 && ofBundle:
			list = append(list, name+" (waits to start)")
		case at < 0 || !ofBundle && pods[at].DeletionTimestamp != nil:
		case !podspec.IsReady(&pods[at].Status) && pods[at].Status.Phase != v1.PodSucceeded:
			list = append(list, fmt.Sprintf("%s (%s)", name, describe(pods[at])))
		}
	}
	return list
}

// describe returns why a pod is not Ready, in a word.
func describe(p *v1.Pod) string {
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			switch {
			case c.State.Waiting != nil && c.LastTerminationState.Terminated != nil:
				return fmt.Sprintf("%s: container %s %s", c.State.Waiting.Reason, c.Name, describeEnd(c.LastTerminationState.Terminated))
			case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
				return c.State.Waiting.Reason
			case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
				return "container " + c.Name + " " + describeEnd(c.State.Terminated)
			case c.State.Running != nil && !c.Ready && c.RestartCount > 0:
				return fmt.Sprintf("container %s is not ready after %d restarts", c.Name, c.RestartCount)
			}
		}
	}
	return cmp.Or(p.Status.Reason, "not ready")
}

// maxEndText is the length of a termination message that a reason quotes, in bytes.
const maxEndText = 120

// describeEnd returns how a container has ended, with the last line of its termination message. The pod is gone when someone reads this.
func describeEnd(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("has ended with code %d", t.ExitCode)
	line := strings.TrimSpace(t.Message)
	if i := strings.LastIndexByte(line, '\n'); i >= 0 {
		line = line[i+1:]
	}
	if line == "" {
		return text
	}
	return text + ": " + printable.Cut(line, maxEndText)
}
