package worker

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/internal/retry"
)

// recordFailure records a failed pull and begins its back-off. The length of the back-off is random, so that many nodes do
// not retry at the same time after a failure of their registry. It is at least the registry's Retry-After.
func (m *images) recordFailure(w pullKey, err error) error {
	now := time.Now()
	maps.DeleteFunc(m.failed, func(_ pullKey, f failedPull) bool { return now.Sub(f.retryAt) > plan.PullForget })
	f, again := m.failed[w]
	if !again {
		f.backoff = retry.Backoff{FirstWindow: plan.PullFirst, SecondWindow: plan.PullMost, MaxWindow: plan.PullMost}
	}
	err = fmt.Errorf("failed to pull and unpack image %q: %w", w.image, err)
	var limited interface{ RetryAfter() time.Duration }
	least := time.Duration(0)
	if errors.As(err, &limited) {
		least = limited.RetryAfter()
	}
	f.retryAt, f.err = now.Add(f.backoff.Next(least)), err
	m.failed[w] = f
	return &Problem{Reason: plan.ErrImagePull, Retry: f.retryAt, Err: err}
}

// clearBackoffs ends the back-off of all images.
func (m *images) clearBackoffs() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.failed)
}

// isUnreachable reports whether a pull failed without a response of the registry about the image. Server
// errors, overload (5xx, 429), broken connections and timeouts are such failures. The runtime reports them as
// RegistryUnavailable.
func isUnreachable(err error) bool {
	unavailable := crierrors.ErrRegistryUnavailable
	if errors.Is(err, unavailable) || strings.Contains(err.Error(), unavailable.Error()+":") {
		return true
	}
	return registry.IsNetworkError(err) || errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) ||
		strings.Contains(err.Error(), "dial tcp")
}

type failedPull struct {
	backoff retry.Backoff
	retryAt time.Time // when the back-off ends
	err     error
}
