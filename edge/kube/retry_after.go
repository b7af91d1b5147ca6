package kube

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxRetryAfter is the maximum result of RetryAfter.
const maxRetryAfter = 2 * time.Minute

// RetryAfter returns the Retry-After of a request's error, or 0 if the server did not send one. The result is at most two minutes. See
// https://datatracker.ietf.org/doc/html/rfc9110#section-10.2.3.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(max(time.Duration(seconds), 0), maxRetryAfter/time.Second) * time.Second
}

// ErrNoLink is the error of a request that was not sent because the link to the server is down.
var ErrNoLink = errors.New("no link to the API server")

// IsAnswer reports whether the server has sent the error. If it has, the same request should not be sent again. If the server could not be
// reached, the request should be retried when the link is up.
func IsAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
