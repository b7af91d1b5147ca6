package kube

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ungatedKey is the context key of requests that skip Before, After and Heard.
type ungatedKey struct{}

// Ungated returns a context whose requests skip Before, After and Heard. They are used to find out
// whether the link may be used at all.
func Ungated(ctx context.Context) context.Context { return context.WithValue(ctx, ungatedKey{}, true) }

// noAnswerKey is the context key of a *error in which the gate stores why the last attempt got no
// answer.
type noAnswerKey struct{}

// refused hides the text of an error of Before from rest.Request, which retries errors whose text
// is about a lost connection.
type refused struct{ why error }

func (refused) Error() string   { return "refused" }
func (r refused) Unwrap() error { return r.why }

// unwrapRefused returns the error for a request's caller.
func unwrapRefused(err error) error {
	if r := (refused{}); errors.As(err, &r) {
		return r.why
	}
	return err
}

// A gate is the http.RoundTripper of all attempts of all requests.
type gate struct {
	client *Client
	next   http.RoundTripper
}

// RoundTrip calls Before, sends the request, counts its outcome, and calls After.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cfg := req.Context(), g.client.cfg
	gated := ctx.Value(ungatedKey{}) == nil
	if gated && cfg.Before != nil {
		if err := cfg.Before(ctx); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			setNoAnswer(ctx, err)
			return nil, refused{err}
		}
	}
	return g.send(req, gated)
}

// send sends the request, counts its outcome, and calls Heard and After if gated is set.
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
	if err != nil && cancelled(ctx, err) {
		return resp, err
	}
	if err == nil {
		resp.Body = watched(ctx, bounded(req, resp))
		if date, until := serverTime(resp); gated && cfg.Heard != nil && !date.IsZero() && !until.IsZero() {
			cfg.Heard(date, until)
		}
	}
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	if f := g.client.took.Load(); f != nil {
		(*f)(req.Method, time.Since(sent))
	}
	g.client.count(Outcome{Method: req.Method, Status: status})
	// A timeout while data arrived means that the link is slow, not that it is down.
	slow := errors.Is(err, context.DeadlineExceeded) && g.client.progress.last() > began
	if gated && cfg.After != nil && !slow {
		cfg.After(status, err)
	}
	return resp, err
}

// cancelled reports whether a request ended because its caller cancelled it, which says nothing
// about the server.
func cancelled(ctx context.Context, err error) bool {
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
