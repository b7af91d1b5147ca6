package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

const (
	// patience is how long a registry may take to accept a connection, TLS and all,
	// and impatience where the way out of this node is known to be down: one in the
	// same network answers within that.
	patience   = time.Minute
	impatience = 3 * time.Second
	// silence is how long a registry is not asked again that did not answer.
	silence = 30 * time.Second
	// askLatest is the most that a registry may ask for.
	askLatest = 10 * time.Minute
	// maxHosts bounds of how many registries something is remembered.
	maxHosts = 256
)

// hosts remembers which registries cannot be asked now: those that asked not to be
// (429 and 503 with Retry-After) and those that did not answer. Then every other
// pull fails at once, instead of waiting for the same. One that refused a
// connection answered: to ask it again costs nothing.
// https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
type hosts struct {
	down func() bool // the way out of this node is down; nil: unknown

	mu  sync.Mutex
	not map[string]*notNow
}

// notNow is why a registry is not asked. It is a net.Error, so that its registry
// counts as one that cannot be reached.
type notNow struct {
	host  string
	until time.Time
	why   string
}

func (e *notNow) Error() string {
	return fmt.Sprintf("registry %s %s and is asked again in %v", e.host, e.why, time.Until(e.until).Round(time.Second))
}

// RetryAfter is when the registry is asked again; whoever pulls need not try before.
func (e *notNow) RetryAfter() time.Duration { return max(time.Until(e.until), 0) }

func (*notNow) Timeout() bool   { return true }
func (*notNow) Temporary() bool { return true }

// ask fails for a registry that cannot be asked now.
func (h *hosts) ask(host string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.not[host]
	if n == nil {
		return nil
	}
	if !time.Now().Before(n.until) {
		delete(h.not, host)
		return nil
	}
	return n
}

func (h *hosts) note(host, why string, wait time.Duration) *notNow {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.not == nil || len(h.not) >= maxHosts {
		h.not = map[string]*notNow{}
	}
	h.not[host] = &notNow{host: host, until: time.Now().Add(wait), why: why}
	return h.not[host]
}

// reach asks registries as hosts allows.
type reach struct {
	http.RoundTripper
	hosts *hosts
}

var errNoAnswer = errors.New("it does not answer")

// RoundTrip fails at once for a registry that cannot be asked now.
func (r reach) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	if err := r.hosts.ask(host); err != nil {
		return nil, err
	}
	req, err := guardToken(modest(req))
	if err != nil {
		return nil, err
	}
	limit := patience
	if r.hosts.down != nil && r.hosts.down() {
		limit = impatience
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(errNoAnswer) })
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { timer.Stop() }}
	res, err := r.RoundTripper.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	timer.Stop()
	if err != nil {
		silent := errors.Is(context.Cause(ctx), errNoAnswer)
		cancel(nil)
		if silent {
			return nil, r.hosts.note(host, fmt.Sprintf("does not answer within %v", limit), silence)
		}
		return nil, err
	}
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
		if wait := retryAfter(res.Header.Get("Retry-After"), time.Now()); wait > 0 {
			r.hosts.note(host, fmt.Sprintf("has too much to do (%s)", res.Status), wait)
		}
	}
	res.Body = &canceller{res.Body, cancel}
	if err := bound(req, res); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// CloseIdleConnections is called by http.Client.
func (r reach) CloseIdleConnections() {
	if c, ok := r.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// retryAfter reads a Retry-After, in seconds or as a date, within bounds. 0: none.
func retryAfter(header string, now time.Time) time.Duration {
	var wait time.Duration
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), askLatest)
}

// canceller ends a request's context with its body.
type canceller struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (c *canceller) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}
