package kube

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestAsked is the maximum that RetryAfter returns.
const longestAsked = 2 * time.Minute

// RetryAfter returns the Retry-After of a request's error, at most two minutes, or 0 if the server did not
// send one. See https://datatracker.ietf.org/doc/html/rfc9110#section-10.2.3.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(max(time.Duration(seconds), 0), longestAsked/time.Second) * time.Second
}

// ErrNoLink is the error of a request that was not sent because the link to the server is known to be down.
var ErrNoLink = errors.New("no link to the API server")

// Answered reports whether the server answered a request with this error. After an answer there is no point
// in sending the same request again. A request without an answer should be retried when the link is up.
func Answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
