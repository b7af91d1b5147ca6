package outbox

import (
	"cmp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// An item contains the status that the node wants to report for one pod, and the status that the server has. The Outbox's mu protects it.
type item struct {
	name         types.NamespacedName
	uid          types.UID     // UID of a pod of the API server; empty for a mirror pod
	manifest     *v1.Pod       // the pod's manifest on this node; nil if the pod must not run here
	wantedStatus *v1.PodStatus // the newest status; nil if there is none yet
	isStarting   bool          // the wanted status only means that the pod is about to start or to become ready
	hasEnded     bool          // the wanted status means that all containers of the pod have ended
	isFinished   bool          // all resources of the pod on the node are gone
	isReplaced   bool          // see Config.IsReplaced; set together with isFinished
	server       *serverPod    // the server's version; nil if the server does not have the pod

	due time.Time // time of the next attempt; zero if none is scheduled
	// unsettled is the time of the first change that scheduleSend has delayed. It is zero if the field due was not set by scheduleSend.
	unsettled time.Time
	busy      bool  // true while a request is in flight
	hold      *hold // the hold that nextToSend has extended for the request in flight; nil if there is none
	failures  int   // number of failures with mayConcernOne since the last success
	refusals  int   // number of failures of only this item since the last success, see retryAlone
}

// A serverPod contains the parts of the server's version of a pod that the outbox needs.
type serverPod struct {
	uid      types.UID
	version  uint64
	deleting bool
	mirror   bool
	hash     string // hash of the manifest of a mirror pod
	status   v1.PodStatus
}

func serverPodOf(m *metav1.ObjectMeta, status v1.PodStatus) *serverPod {
	v := &serverPod{uid: m.UID, deleting: m.DeletionTimestamp != nil, status: status}
	v.version, _ = strconv.ParseUint(m.ResourceVersion, 10, 64)
	v.hash, v.mirror = m.Annotations[v1.MirrorPodAnnotationKey]
	return v
}

// hasEnded reports whether a pod has ended.
func hasEnded(s *v1.PodStatus) bool { return s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed }

// recordServerPod records the server's version of the pod, unless the known version is newer.
func (it *item) recordServerPod(v *serverPod) {
	if it.server == nil || it.server.uid != v.uid || v.version == 0 || v.version >= it.server.version {
		it.server = v
	}
}

// canForgetUnreported reports whether a finished pod can be forgotten without a request. This is the case if the server does not have the
// pod, or has not marked it for deletion.
func (it *item) canForgetUnreported(listed bool) bool {
	gone := it.isReplaced || listed && (it.server == nil || !it.server.deleting)
	return it.uid != "" && it.isFinished && gone
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
	// An earlier version of the agent may have sent the containers in another order. A different order is not a change of state.
	sorting.StableBy(all, func(a, b containerState) int { return cmp.Compare(a.name, b.name) })
	return all
}

// isRefusal reports whether the server has rejected a request because of its content, so that the same request would be rejected again.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}
