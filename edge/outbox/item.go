package outbox

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/podspec"
)

// An item contains the status that the node wants to report for one pod, and the status that the server has. The Outbox's mu protects it.
type item struct {
	name         types.NamespacedName
	uid          types.UID     // UID of a pod of the API server; empty for a mirror pod
	manifest     *v1.Pod       // the pod's manifest on this node; nil if the pod must not run here
	wantedStatus *v1.PodStatus // the newest status; nil if there is none yet
	isBeginning  bool          // the wanted status only means that the pod is about to start or to become ready
	hasEnded     bool          // the wanted status means that all containers of the pod have ended
	isFinished   bool          // all resources of the pod on the node are gone
	server       *view         // the server's version; nil if the server does not have the pod

	due time.Time // time of the next attempt; zero if none is scheduled
	// unsettled is the time of the first change that scheduleSend has delayed. It is zero if the field due was not set by scheduleSend.
	unsettled time.Time
	busy      bool // true while a request is in flight
	tries     int  // number of consecutive requests that the server has rejected
}

// A view contains the parts of the server's version of a pod that the outbox needs.
type view struct {
	uid      types.UID
	version  uint64
	deleting bool
	mirror   bool
	hash     string // hash of the manifest of a mirror pod
	status   v1.PodStatus
}

func viewOf(m *metav1.ObjectMeta, status v1.PodStatus) *view {
	v := &view{uid: m.UID, deleting: m.DeletionTimestamp != nil, status: status}
	v.version, _ = strconv.ParseUint(m.ResourceVersion, 10, 64)
	v.hash, v.mirror = m.Annotations[v1.MirrorPodAnnotationKey]
	return v
}

// dueWithin schedules the next attempt after at most d.
func (it *item) dueWithin(d time.Duration) {
	if at := time.Now().Add(d); it.due.IsZero() || at.Before(it.due) {
		it.due, it.unsettled = at, time.Time{}
	}
}

// scheduleSend schedules the next attempt for the time when the status has been unchanged for settleTime. Each further call delays the
// attempt, but to no later than settleMost after the first call. A status that is replaced before the attempt is not sent.
func (it *item) scheduleSend() {
	now := time.Now()
	at := now.Add(settleTime)
	switch {
	case !it.unsettled.IsZero():
		if latest := it.unsettled.Add(settleMost); latest.Before(at) {
			at = latest
		}
		it.due = at
	case it.due.IsZero() || at.Before(it.due):
		it.due, it.unsettled = at, now
	}
}

// onlyStarting reports whether the status only means that the pod is about to start or to become ready. It returns false if the pod is
// ready in the server's version.
func (it *item) onlyStarting() bool {
	return it.uid != "" && !it.isFinished && it.wantedStatus != nil && it.isBeginning && (it.server == nil || !isReady(&it.server.status))
}

// hasSandbox reports whether the sandbox of the pod is ready. If onlyStarting also returns true, the status shows which init containers
// have ended, and which containers are running.
func (it *item) hasSandbox() bool {
	return it.wantedStatus != nil && isTrue(it.wantedStatus, v1.PodReadyToStartContainers)
}

// endsSoon reports whether the pod is deleted and its containers have ended. Its other resources on the node will soon be removed. After
// that, one request can report the end.
func (it *item) endsSoon() bool {
	return it.uid != "" && it.hasEnded && !it.isFinished && it.server != nil && it.server.deleting
}

// hasEnded reports whether a pod has ended.
func hasEnded(s *v1.PodStatus) bool { return s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed }

// recordView records the server's version of the pod, unless the known version is newer.
func (it *item) recordView(v *view) {
	if it.server == nil || it.server.uid != v.uid || v.version == 0 || v.version >= it.server.version {
		it.server = v
	}
}

// maxDelay returns the maximum delay for sending a changed status. It depends on the former and the new status.
func maxDelay(before, now *v1.PodStatus) time.Duration {
	switch {
	case before == nil && isStarting(now):
		return settleTime
	case before == nil, before.Phase != now.Phase, before.PodIP != now.PodIP, isReady(before) != isReady(now),
		!slices.Equal(containerStates(before), containerStates(now)):
		if isStarting(now) && !isReady(before) {
			return settleTime
		}
		return 0
	case isStarting(now) && isTrue(before, v1.PodReadyToStartContainers) != isTrue(now, v1.PodReadyToStartContainers):
		return settleTime
	}
	return normalDelay
}

// isStarting reports whether a pod is about to start or to become ready, without a problem.
func isStarting(s *v1.PodStatus) bool {
	if s.Phase != v1.PodPending {
		return justStarted(s)
	}
	for c := range podspec.Statuses(s) {
		w := c.State.Waiting
		stateless := w == nil && c.State.Terminated == nil && c.State.Running == nil
		if stateless || w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false
		}
	}
	return true
}

// justStarted reports whether all containers of a pod have just started for the first time, and one of them is not ready yet. Most programs
// soon pass their first probes. One request then reports the start and the readiness. The start times come from this node, so they can be
// compared with its clock.
func justStarted(s *v1.PodStatus) bool {
	waits := false
	for _, c := range s.ContainerStatuses {
		if c.State.Running == nil || c.RestartCount > 0 {
			return false
		}
		waits = waits || !c.Ready && time.Since(c.State.Running.StartedAt.Time) < 2*settleTime
	}
	return s.Phase == v1.PodRunning && waits
}

func isReady(s *v1.PodStatus) bool { return isTrue(s, v1.PodReady) }

func isTrue(s *v1.PodStatus, t v1.PodConditionType) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == t && c.Status == v1.ConditionTrue })
}

type containerState struct {
	name, kind, reason string
	restarts           int32
	ready              bool
}

func containerStates(s *v1.PodStatus) (all []containerState) {
	for c := range podspec.Statuses(s) {
		st := containerState{name: c.Name, restarts: c.RestartCount, ready: c.Ready}
		switch {
		case c.State.Running != nil:
			st.kind = "running"
		case c.State.Terminated != nil:
			st.kind, st.reason = "terminated", c.State.Terminated.Reason
		case c.State.Waiting != nil:
			st.kind, st.reason = "waiting", c.State.Waiting.Reason
		}
		all = append(all, st)
	}
	return all
}

// isRefusal reports whether the server has rejected a request because of its content, so that the same request would be rejected again.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}
