package kube

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestAsked bounds what a server may ask for.
const longestAsked = 2 * time.Minute

// RetryAfter is how long the server asks to be left alone by an error of a request
// (https://datatracker.ietf.org/doc/html/rfc9110#section-10.2.3), at most two minutes;
// 0: it does not ask.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(max(time.Duration(seconds), 0), longestAsked/time.Second) * time.Second
}

// ErrNoLink is why a request failed that did not leave the node, because the link to the
// server is known to be down.
var ErrNoLink = errors.New("no link to the API server")

// Answered tells whether an error of a request is the server's answer, and not the lack
// of one. What the server refuses it will refuse again; what it did not answer is worth
// another try when the link is up.
func Answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
