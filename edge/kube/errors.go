package kube

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
