package kube

import (
	"context"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/islet-edge/islet/internal/retry"
)

const (
	// repeats is the maximum number of retries of a request. Requests are retried after a Retry-After, and
	// a GET also after its connection broke.
	repeats = 2
	// hold is the maximum Retry-After that is followed. If the server sends a longer one, the caller gets
	// the error.
	hold = 10 * time.Second
)

// repeat sends a request until it is answered, or until its error does not justify a retry. The pause is
// random, so that a thousand nodes with the same Retry-After do not retry in the same second.
func (c *Client) repeat(ctx context.Context, verb string, once func(context.Context) error) error {
	b := retry.Backoff{First: time.Second, Most: hold}
	for tries := 0; ; tries++ {
		err := c.once(ctx, once)
		asked := RetryAfter(err)
		broken := verb == http.MethodGet && (utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err))
		if err == nil || tries == repeats || ctx.Err() != nil || asked > hold || asked == 0 && !broken {
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

func (c *Client) once(ctx context.Context, do func(context.Context) error) error {
	p := c.patient(ctx)
	defer p.end()
	err := do(p)
	if late := p.settle(); err != nil && late != nil {
		return late
	}
	return unwrapRefused(err)
}
