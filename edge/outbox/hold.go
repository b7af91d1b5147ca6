package outbox

import (
	"cmp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

// A hold delays requests after failures. It grows with each failure.
type hold struct {
	backoff     retry.Backoff
	until       time.Time
	failedUntil time.Time // the end of the hold after the last failure; nextToSend may move until afterwards
}

// extend counts a failure and sets the end of the hold.
func (h *hold) extend(now time.Time) {
	if !h.hasFailed(now) {
		h.backoff = retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	}
	h.until = now.Add(h.backoff.Next(0))
	h.failedUntil = h.until
}

// isOver reports whether the failures belong to an earlier outage.
func (h *hold) isOver(now time.Time) bool { return now.Sub(h.failedUntil) > 2*lastRetry }

// hasFailed reports whether there was a failure in this outage.
func (h *hold) hasFailed(now time.Time) bool { return h.backoff.HasFailed() && !h.isOver(now) }

// end permits an immediate attempt. The back-off stays, because the server may still fail.
func (h *hold) end(now time.Time) {
	if h.until.After(now) {
		h.until = now
	}
}

// Holds delay requests that may fail again, while other requests are sent. They are for failures that may concern only some objects, such
// as failures of a webhook that cannot be called. All objects that have failed share one hold, so the rate of their requests does not
// depend on their number. Their namespaces take turns. The objects of a namespace that have not failed yet share another hold after one of
// them has failed, because many webhooks concern one namespace. If such objects of two namespaces fail, and the server has accepted nothing
// in between, the server probably fails for all objects.
type holds struct {
	failed     hold // of the objects that have failed
	namespaces map[string]*namespaceHold
	accepted   uint32 // number of accepted requests
}

type namespaceHold struct {
	hold               // of the objects that have not failed
	accepted uint32    // holds.accepted at the last failure of such an object
	failedAt time.Time // time of the last failure of any object
}

// fail counts a failure. The argument isFirst means that the object had not failed before. The result forAll means that the server probably
// fails for all objects.
func (h *holds) fail(namespace string, isFirst bool, now time.Time) (forAll bool) {
	for name, other := range h.namespaces {
		switch {
		case other.isOver(now) && now.Sub(other.failedAt) > 2*lastRetry: // also of namespaces that have no objects any more
			delete(h.namespaces, name)
		case name != namespace && !other.isOver(now) && other.accepted == h.accepted:
			forAll = isFirst
		}
	}
	own := h.namespaces[namespace]
	if own == nil {
		if h.namespaces == nil {
			h.namespaces = map[string]*namespaceHold{}
		}
		own = &namespaceHold{}
		h.namespaces[namespace] = own
	}
	own.failedAt = now
	if isFirst {
		own.accepted = h.accepted
		own.extend(now)
	} else {
		h.failed.extend(now)
	}
	return forAll
}

// accept records that the server has accepted the request of an object.
func (h *holds) accept(namespace string, hadFailed bool, now time.Time) {
	h.accepted++
	if own := h.namespaces[namespace]; own != nil {
		own.hold = hold{}
	}
	if hadFailed {
		h.failed.backoff.Reset()
		h.failed.end(now)
	}
}

// of returns the hold of an object, or nil if it has none.
func (h *holds) of(namespace string, hasFailed bool, now time.Time) *hold {
	if hasFailed {
		return &h.failed
	}
	if own := h.namespaces[namespace]; own != nil && !own.isOver(now) {
		return &own.hold
	}
	return nil
}

// until returns the time before which an object must not be sent.
func (h *holds) until(namespace string, hasFailed bool, now time.Time) time.Time {
	if own := h.of(namespace, hasFailed, now); own != nil {
		return own.until
	}
	return time.Time{}
}

// compare orders objects that have failed: first the objects of the namespace whose last failure is the oldest, then the objects that have
// failed less often.
func (h *holds) compare(a, b string, triesA, triesB int) int {
	return cmp.Or(h.failedAt(a).Compare(h.failedAt(b)), cmp.Compare(triesA, triesB))
}

func (h *holds) failedAt(namespace string) time.Time {
	if own := h.namespaces[namespace]; own != nil {
		return own.failedAt
	}
	return time.Time{}
}

// hasFailed reports whether an object has failed recently, and the server has not accepted such an object since.
func (h *holds) hasFailed(now time.Time) bool {
	for _, own := range h.namespaces {
		if own.hasFailed(now) {
			return true
		}
	}
	return h.failed.hasFailed(now)
}

// end permits an immediate attempt for all objects. Call it when the link is up again.
func (h *holds) end(now time.Time) {
	h.failed.end(now)
	for _, own := range h.namespaces {
		own.end(now)
	}
}

// mayConcernOne reports whether the server has answered with an error that may concern only the object of the request. The server may then
// accept other requests. An answer that requests a pause or other credentials concerns all requests.
func mayConcernOne(err error) bool {
	return kube.IsAnswer(err) && kube.RetryAfter(err) == 0 && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// ownDelay returns the delay of an object after the given number of failures.
func ownDelay(tries int) time.Duration { return min(firstRetry<<min(tries, maxTries), lastRetry) }
