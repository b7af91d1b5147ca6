package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// connectTimeout is the timeout for a connection to a registry, including TLS. linkDownTimeout is the
	// timeout while this node's uplink is known to be down. It is shorter, but long enough for a
	// registry in the local network.
	connectTimeout  = time.Minute
	linkDownTimeout = 3 * time.Second
	// noResponsePause is the time for which a registry that did not respond is not contacted again.
	noResponsePause = 30 * time.Second
	// maxRetryAfter limits the delay of a Retry-After header.
	maxRetryAfter = 10 * time.Minute
	// maxHosts is the maximum number of tracked registries.
	maxHosts = 256
)

// pausedHosts tracks the registries that should not be contacted for now: those that sent 429 or 503 with
// Retry-After, and those that did not respond. A pull from such a registry fails at once, because
// waiting would lead to the same result. A registry that refused a connection is not tracked,
// because a further attempt costs nothing.
type pausedHosts struct {
	isUplinkDown func() bool // reports whether this node's uplink is down; if nil, this is unknown

	mu     sync.Mutex
	paused map[string]*pausedError
}

// A pausedError is the reason why a registry is not contacted for now. It implements net.Error, so it
// counts as a network error.
type pausedError struct {
	host  string
	until time.Time
	why   string
}

func (e *pausedError) Error() string {
	return fmt.Sprintf("registry %s %s and is tried again in %v", e.host, e.why, time.Until(e.until).Round(time.Second))
}

// RetryAfter returns how long a puller should wait before the next attempt.
func (e *pausedError) RetryAfter() time.Duration { return max(time.Until(e.until), 0) }

func (*pausedError) Timeout() bool   { return true }
func (*pausedError) Temporary() bool { return true }

// checkHost returns an error for a registry that should not be contacted for now.
func (h *pausedHosts) checkHost(host string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.paused[host]
	if n == nil {
		return nil
	}
	if !time.Now().Before(n.until) {
		delete(h.paused, host)
		return nil
	}
	return n
}

func (h *pausedHosts) pauseHost(host, why string, wait time.Duration) *pausedError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused == nil || len(h.paused) >= maxHosts {
		h.paused = map[string]*pausedError{}
	}
	h.paused[host] = &pausedError{host: host, until: time.Now().Add(wait), why: why}
	return h.paused[host]
}

// Before each request, a registryTransport checks whether the registry may be contacted now.
type registryTransport struct {
	http.RoundTripper
	hosts *pausedHosts
}

var errNoAnswer = errors.New("it does not respond")

// RoundTrip sends a request. It fails at once if the registry should not be contacted for now.
func (r registryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	if err := r.hosts.checkHost(host); err != nil {
		return nil, err
	}
	req, err := registry.PrepareRequest(withConfiguredAgent(req))
	if err != nil {
		return nil, err
	}
	limit := connectTimeout
	if r.hosts.isUplinkDown != nil && r.hosts.isUplinkDown() {
		limit = linkDownTimeout
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
			return nil, r.hosts.pauseHost(host, fmt.Sprintf("does not respond within %v", limit), noResponsePause)
		}
		return nil, err
	}
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
		if wait := retry.After(res.Header.Get("Retry-After"), time.Now(), maxRetryAfter); wait > 0 {
			r.hosts.pauseHost(host, fmt.Sprintf("is overloaded (%s)", res.Status), wait)
		}
	}
	res.Body = &canceller{res.Body, cancel}
	if err := registry.LimitBody(req, res); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// CloseIdleConnections implements the method that http.Client looks for.
func (r registryTransport) CloseIdleConnections() {
	if c, ok := r.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A canceller cancels a request's context when its body is closed.
type canceller struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (c *canceller) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}
