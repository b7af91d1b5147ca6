package kube

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ungatedKey is the context key of requests that skip BeforeRequest, AfterRequest and OnDate.
type ungatedKey struct{}

// WithoutHooks returns a context whose requests skip BeforeRequest, AfterRequest and OnDate. Use it for requests that check whether the
// link works.
func WithoutHooks(ctx context.Context) context.Context {
	return context.WithValue(ctx, ungatedKey{}, true)
}

// noAnswerKey is the context key for a *error. If an attempt gets no answer, the gate sets this variable to the reason.
type noAnswerKey struct{}

// refusedError wraps an error of BeforeRequest and hides its text. Otherwise rest.Request would retry errors whose text mentions a lost
// connection.
type refusedError struct{ why error }

func (refusedError) Error() string   { return "refused" }
func (r refusedError) Unwrap() error { return r.why }

// unwrapRefused returns the original error of BeforeRequest. It returns other errors unchanged.
func unwrapRefused(err error) error {
	if r := (refusedError{}); errors.As(err, &r) {
		return r.why
	}
	return err
}

// A gate is the http.RoundTripper of a Client. It sends every attempt of every request.
type gate struct {
	client *Client
	next   http.RoundTripper
}

// RoundTrip calls BeforeRequest, sends the request, counts its outcome, and calls AfterRequest.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cfg := req.Context(), g.client.cfg
	gated := ctx.Value(ungatedKey{}) == nil
	if gated && cfg.BeforeRequest != nil {
		if err := cfg.BeforeRequest(ctx); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			setNoAnswer(ctx, err)
			return nil, refusedError{err}
		}
	}
	return g.send(req, gated)
}

// send sends the request and counts its outcome. OnDate and AfterRequest are called only for requests that the gate admits, not for probes.
func (g *gate) send(req *http.Request, gated bool) (*http.Response, error) {
	ctx, cfg := req.Context(), g.client.cfg
	began, sent := g.client.progress.now(), time.Now()
	resp, err := g.next.RoundTrip(req)
	if late := context.Cause(ctx); err != nil && errors.Is(late, errSilent) {
		err = late
	}
	if err == nil {
		if err = checkServer(resp); err != nil {
			_ = resp.Body.Close()
			resp = nil
		}
	}
	setNoAnswer(ctx, err)
	if err != nil && isCancelled(ctx, err) {
		return resp, err
	}
	if err == nil {
		resp.Body = trackBody(ctx, limitBody(req, resp))
		if date, until := serverTime(resp); gated && cfg.OnDate != nil && !date.IsZero() && !until.IsZero() {
			cfg.OnDate(date, until)
		}
	}
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	if f := g.client.observeDuration.Load(); f != nil {
		(*f)(req.Method, time.Since(sent))
	}
	g.client.count(Outcome{Method: req.Method, Status: status})
	// If data arrived during a timed-out request, the link is slow, not down.
	slow := errors.Is(err, context.DeadlineExceeded) && g.client.progress.lastData() > began
	if gated && cfg.AfterRequest != nil && !slow {
		cfg.AfterRequest(status, err)
	}
	return resp, err
}

// isCancelled reports whether a request ended because its caller cancelled it. Such an error contains no information about the server.
func isCancelled(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	ours := errors.Is(cause, errSilent) || errors.Is(cause, ErrBusy)
	return errors.Is(err, context.Canceled) || !ours && errors.Is(ctx.Err(), context.Canceled)
}

func setNoAnswer(ctx context.Context, err error) {
	if p, ok := ctx.Value(noAnswerKey{}).(*error); ok {
		*p = err
	}
}

func (c *Client) count(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[o]++
}
