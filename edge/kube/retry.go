package kube

import (
	"context"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/islet-edge/islet/internal/retry"
)

const (
	// maxRetries is the maximum number of retries of a request. A request is retried after a Retry-After. A GET is also retried after a
	// broken connection.
	maxRetries = 2
	// maxWait is the maximum Retry-After for which the client waits. If the server requests a longer wait, the caller gets the error.
	maxWait = 10 * time.Second
)

// sendWithRetries sends a request, and sends it again after an error that may be temporary. The pause before a retry is random, so that
// many nodes with the same Retry-After do not retry in the same second.
func (c *Client) sendWithRetries(ctx context.Context, verb string, once func(context.Context) error) error {
	b := retry.Backoff{FirstWindow: time.Second, MaxWindow: maxWait}
	for tries := 0; ; tries++ {
		err := c.sendOnce(ctx, once)
		asked := RetryAfter(err)
		broken := verb == http.MethodGet && (utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err))
		if err == nil || tries == maxRetries || ctx.Err() != nil || asked > maxWait || asked == 0 && !broken {
			return err
		}
		wait := b.Next(asked)
		if end, bound := ctx.Deadline(); bound && time.Until(end) < wait {
			return err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, do func(context.Context) error) error {
	p := c.newTimeouts(ctx)
	defer p.endRequest()
	err := do(p)
	if late := p.stopTimeout(); err != nil && late != nil {
		return late
	}
	return unwrapRefused(err)
}
