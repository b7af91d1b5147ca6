package outbox

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

// A hold delays the requests that have failed, while other requests are sent. It is for failures that may concern only some objects, such
// as those of a webhook that cannot be called.
type hold struct {
	backoff retry.Backoff
	until   time.Time
}

// extend counts a failure and sets the end of the hold.
func (h *hold) extend(now time.Time) {
	if h.isOver(now) {
		h.backoff = retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	}
	h.until = now.Add(h.backoff.Next(0))
}

// isOver reports whether the failures belong to an earlier outage.
func (h *hold) isOver(now time.Time) bool { return now.Sub(h.until) > 2*lastRetry }

// mayConcernOne reports whether the server has answered with an error that may concern only the object of the request. The server may then
// accept other requests. An answer that requests a pause or other credentials concerns all requests.
func mayConcernOne(err error) bool {
	return kube.IsAnswer(err) && kube.RetryAfter(err) == 0 && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// ownDelay returns the delay of an object after the given number of failures.
func ownDelay(tries int) time.Duration { return min(firstRetry<<min(tries, maxTries), lastRetry) }
