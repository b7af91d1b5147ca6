package kube

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An Answer is the server's answer to /readyz.
type Answer struct {
	Status     int           // HTTP status
	Date       time.Time     // the server's clock; zero if not sent
	RetryAfter time.Duration // 0 if not sent
	// CertificateEnd is the NotAfter of the server's verified certificate. If it is zero, the connection is not authenticated, and the Date
	// must not be trusted.
	CertificateEnd time.Time
	NewConnection  bool // the answer came over a new connection
}

// Ready sends GET /readyz. It skips BeforeRequest, AfterRequest and the rate limit. It returns an error if there was no answer.
func (c *Client) Ready(ctx context.Context) (Answer, error) {
	conn, err := c.currentConnection()
	if err != nil {
		return Answer{}, err
	}
	return c.probeReady(ctx, conn, conn.http)
}

// ReadyAnew is like Ready, but it opens a new connection and closes it afterwards.
func (c *Client) ReadyAnew(ctx context.Context) (Answer, error) {
	cfg, err := c.cfg.Rest()
	if err != nil {
		return Answer{}, err
	}
	conn, err := newConnection(c, cfg)
	if err != nil {
		return Answer{}, err
	}
	conn.transport.DisableKeepAlives = true
	defer conn.transport.CloseIdleConnections()
	a, err := c.probeReady(ctx, conn, conn.http)
	a.NewConnection = true
	return a, err
}

func (c *Client) probeReady(ctx context.Context, conn *connection, by *http.Client) (Answer, error) {
	p := c.newTimeouts(WithoutHooks(ctx))
	defer p.endRequest()
	req, err := http.NewRequestWithContext(p, http.MethodGet, conn.base+"/readyz", nil)
	if err != nil {
		return Answer{}, err
	}
	resp, err := by.Do(req)
	if late := p.timeoutError(); late != nil && err != nil {
		return Answer{}, &url.Error{Op: "Get", URL: conn.base, Err: late}
	}
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.StatusCode}
	a.Date, a.CertificateEnd = serverTime(resp)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.RetryAfter = min(time.Duration(seconds), maxRetryAfter/time.Second) * time.Second
	}
	err = isReady(resp)
	if late := p.timeoutError(); late != nil && err != nil {
		err = late
	}
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{}, &url.Error{Op: "Get", URL: conn.base, Err: err}
	}
	return a, nil
}

// serverTime returns the Date of an answer, and the NotAfter of the server's verified certificate. A missing time is zero.
func serverTime(resp *http.Response) (date, until time.Time) {
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		date = t
	}
	if resp.TLS != nil && len(resp.TLS.VerifiedChains) > 0 {
		until = resp.TLS.VerifiedChains[0][0].NotAfter
	}
	return date, until
}
