package kube

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ungated marks the context of a request that passes Before and After by.
type ungated struct{}

// Ungated returns a context whose requests pass Before and After by: they find out whether the
// link may be used at all.
func Ungated(ctx context.Context) context.Context { return context.WithValue(ctx, ungated{}, true) }

// noAnswer is the key of a *error in a request's context, where the gate leaves why
// the last attempt got no answer.
type noAnswer struct{}

// refused hides the text of an error of Before from the request it is returned to,
// which repeats itself, a second later each time, for an error that speaks of a
// lost connection. Before may well do so, and has no need to be asked again.
type refused struct{ why error }

func (refused) Error() string   { return "refused" }
func (r refused) Unwrap() error { return r.why }

// plain is the error that a request's caller gets.
func plain(err error) error {
	if r := (refused{}); errors.As(err, &r) {
		return r.why
	}
	return err
}

// A gate is where every attempt of every request passes.
type gate struct {
	client *Client
	next   http.RoundTripper
}

// RoundTrip asks Before, counts, and tells After.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cfg := req.Context(), g.client.cfg
	gated := ctx.Value(ungated{}) == nil
	if gated && cfg.Before != nil {
		if err := cfg.Before(ctx); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			leave(ctx, err)
			return nil, refused{err}
		}
	}
	began, sent := g.client.progress.now(), time.Now()
	resp, err := g.next.RoundTrip(req)
	if late := context.Cause(ctx); err != nil && errors.Is(late, errSilent) {
		err = late
	}
	if err == nil {
		if err = foreign(resp); err != nil {
			_ = resp.Body.Close()
			resp = nil
		}
	}
	leave(ctx, err)
	if err != nil && cancelled(ctx, err) {
		return resp, err
	}
	if err == nil {
		resp.Body = watched(ctx, bounded(req, resp))
		if date, until := said(resp); gated && cfg.Heard != nil && !date.IsZero() && !until.IsZero() {
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
	// Who gave up while bytes arrived knows nothing of the link but that it is slow.
	slow := errors.Is(err, context.DeadlineExceeded) && g.client.progress.last() > began
	if gated && cfg.After != nil && !slow {
		cfg.After(status, err)
	}
	return resp, err
}

// cancelled reports whether a request ended because its caller gave it up, for whatever
// cause: that says nothing of the server.
func cancelled(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	ours := errors.Is(cause, errSilent) || errors.Is(cause, ErrBusy)
	return errors.Is(err, context.Canceled) || !ours && errors.Is(ctx.Err(), context.Canceled)
}

func leave(ctx context.Context, err error) {
	if p, ok := ctx.Value(noAnswer{}).(*error); ok {
		*p = err
	}
}

func (c *Client) count(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[o]++
}
