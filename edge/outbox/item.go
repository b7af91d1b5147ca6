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

// An item is what there is to tell of one pod. It is guarded by the Outbox's mu.
type item struct {
	name     types.NamespacedName
	uid      types.UID     // of a pod of the API server; empty: the item is a mirror pod
	manifest *v1.Pod       // as the node wants it; nil: it does not
	want     *v1.PodStatus // the newest; nil: there is none
	begins   bool          // want says no more than that the pod is about to start, or to be ready
	ends     bool          // want says that all its containers have ended
	finish   bool          // nothing of it is left here
	server   *view         // as the server shows it; nil: not there

	due   time.Time // when to look at it; zero: not before something happens
	busy  bool
	tries int // refused in a row
}

// A view is how the server shows a pod.
type view struct {
	uid      types.UID
	version  uint64
	deleting bool
	mirror   bool
	hash     string // of the pod it mirrors
	status   v1.PodStatus
}

func viewOf(m *metav1.ObjectMeta, status v1.PodStatus) *view {
	v := &view{uid: m.UID, deleting: m.DeletionTimestamp != nil, status: status}
	v.version, _ = strconv.ParseUint(m.ResourceVersion, 10, 64)
	v.hash, v.mirror = m.Annotations[v1.MirrorPodAnnotationKey]
	return v
}

// soon makes the item due within d, if it is not sooner.
func (it *item) soon(d time.Duration) {
	if at := time.Now().Add(d); it.due.IsZero() || at.Before(it.due) {
		it.due = at
	}
}

// starts says that there is nothing to tell but that the pod is about to start, or to be
// ready. One that the server shows as ready is not about to be.
func (it *item) starts() bool {
	return it.uid != "" && !it.finish && it.want != nil && it.begins && (it.server == nil || !ready(&it.server.status))
}

// ending says that a pod is deleted and its containers have ended: soon nothing of it is
// left here, and then one request tells how it ended.
func (it *item) ending() bool {
	return it.uid != "" && it.ends && !it.finish && it.server != nil && it.server.deleting
}

// over says that a pod has ended.
func over(s *v1.PodStatus) bool { return s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed }

// see takes what the server shows, unless that is older than what is known.
func (it *item) see(v *view) {
	if it.server == nil || it.server.uid != v.uid || v.version == 0 || v.version >= it.server.version {
		it.server = v
	}
}

// urgency says within which time a status is to be sent that follows another.
func urgency(before, now *v1.PodStatus) time.Duration {
	switch {
	case before == nil && fresh(now):
		return starting
	case before == nil, before.Phase != now.Phase, before.PodIP != now.PodIP, ready(before) != ready(now),
		!slices.Equal(states(before), states(now)):
		if fresh(now) && !ready(before) {
			return starting
		}
		return 0
	}
	return calm
}

// fresh says that a pod is about to start, or to be ready, and has no trouble to tell of.
func fresh(s *v1.PodStatus) bool {
	if s.Phase != v1.PodPending {
		return unready(s)
	}
	for c := range podspec.Statuses(s) {
		if w := c.State.Waiting; w == nil && c.State.Terminated == nil && c.State.Running == nil || w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false
		}
	}
	return true
}

// unready says that all containers of a pod have just started for the first time, and one
// is not ready: most programs answer their first probes within a moment, and then one
// request tells of both. A node's own clock says what is just.
func unready(s *v1.PodStatus) bool {
	waits := false
	for _, c := range s.ContainerStatuses {
		if c.State.Running == nil || c.RestartCount > 0 {
			return false
		}
		waits = waits || !c.Ready && time.Since(c.State.Running.StartedAt.Time) < 2*starting
	}
	return s.Phase == v1.PodRunning && waits
}

func ready(s *v1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

type state struct {
	name, kind, reason string
	restarts           int32
	ready              bool
}

func states(s *v1.PodStatus) (all []state) {
	for c := range podspec.Statuses(s) {
		st := state{name: c.Name, restarts: c.RestartCount, ready: c.Ready}
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

// refusal says that an error is about the one object, not about the server.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}
