package outbox

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// dueWithin schedules the next attempt after at most d.
func (it *item) dueWithin(d time.Duration) {
	if at := time.Now().Add(d); it.due.IsZero() || at.Before(it.due) {
		it.due, it.unsettled = at, time.Time{}
	}
}

// retryAlone schedules the next attempt after a failure that concerns only this item, and logs the failure.
func (o *Outbox) retryAlone(it *item, message string, err error) {
	it.refusals++
	it.dueWithin(min(firstRetry<<min(it.refusals, 12), maxRefusedRetry))
	o.Log.Warn(message, "pod", it.name.String(), "uid", it.uid, "tries", it.refusals, "error", err)
}

// retryForget schedules the next attempt to forget a pod after a failure of the store.
func (o *Outbox) retryForget(it *item, err error) {
	o.retryAlone(it, "an ended pod cannot be removed from the database of this node: the removal is retried later", err)
}

// retryFailed schedules an immediate attempt for all items whose last requests failed, unless the server has rejected them.
func (o *Outbox) retryFailed() {
	for _, it := range o.allItems() {
		if it.failures > 0 && it.refusals == 0 && !it.due.IsZero() {
			it.dueWithin(0)
		}
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

// isOnlyStarting reports whether the status only means that the pod is about to start or to become ready. It returns false if the pod is
// ready in the server's version.
func (it *item) isOnlyStarting() bool {
	isReady := it.server != nil && podspec.IsReady(&it.server.status)
	return it.uid != "" && !it.isFinished && it.wantedStatus != nil && it.isStarting && !isReady
}

// hasSandbox reports whether the sandbox of the pod is ready. If isOnlyStarting also returns true, the status shows which init containers
// have ended, and which containers are running.
func (it *item) hasSandbox() bool {
	return it.wantedStatus != nil && isSandboxReady(it.wantedStatus)
}

func isSandboxReady(s *v1.PodStatus) bool {
	return podspec.HasCondition(s, v1.PodReadyToStartContainers)
}

// endsSoon reports whether the pod is deleted and its containers have ended. Its other resources on the node will soon be removed. After
// that, one request can report the end.
func (it *item) endsSoon() bool {
	return it.uid != "" && it.hasEnded && !it.isFinished && it.server != nil && it.server.deleting
}

// maxDelay returns the maximum delay for sending a changed status. It depends on the former and the new status.
func maxDelay(before, now *v1.PodStatus) time.Duration {
	switch {
	case before == nil && isStarting(now):
		return settleTime
	case before == nil, before.Phase != now.Phase, before.PodIP != now.PodIP, podspec.IsReady(before) != podspec.IsReady(now),
		!slices.Equal(containerStates(before), containerStates(now)):
		if isStarting(now) && !podspec.IsReady(before) {
			return settleTime
		}
		return 0
	case isStarting(now) && isSandboxReady(before) != isSandboxReady(now):
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
