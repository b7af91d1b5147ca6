package kube

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An Answer is what a server says of itself.
type Answer struct {
	Status     int           // of HTTP
	Date       time.Time     // of its clock; zero: it does not say
	RetryAfter time.Duration // 0: it does not say
	// Until is the end of the server's certificate, which was verified; zero: there was
	// none, or nobody verified it, and the Date is anybody's.
	Until time.Time
	Fresh bool // over a connection of its own
}

// Ready asks the server whether it is ready, past Before and After and the rate
// limit. The error says why there was no answer.
func (c *Client) Ready(ctx context.Context) (Answer, error) {
	conn, err := c.connection()
	if err != nil {
		return Answer{}, err
	}
	return c.ready(ctx, conn, conn.http)
}

// ReadyAnew is Ready over a connection of its own, which it leaves nothing of.
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
	a, err := c.ready(ctx, conn, conn.http)
	a.Fresh = true
	return a, err
}

func (c *Client) ready(ctx context.Context, conn *connection, by *http.Client) (Answer, error) {
	p := c.patient(Ungated(ctx))
	defer p.end()
	req, err := http.NewRequestWithContext(p, http.MethodGet, conn.base+"/readyz", nil)
	if err != nil {
		return Answer{}, err
	}
	resp, err := by.Do(req)
	if late := p.late(); late != nil && err != nil {
		return Answer{}, &url.Error{Op: "Get", URL: conn.base, Err: late}
	}
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.StatusCode}
	a.Date, a.Until = said(resp)
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.RetryAfter = min(time.Duration(seconds), longestAsked/time.Second) * time.Second
	}
	err = isReady(resp)
	if late := p.late(); late != nil && err != nil {
		err = late
	}
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{}, &url.Error{Op: "Get", URL: conn.base, Err: err}
	}
	return a, nil
}

// said is what an answer says of the time, and the end of the verified certificate of who
// says so; zero for what there is not.
func said(resp *http.Response) (date, until time.Time) {
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		date = t
	}
	if resp.TLS != nil && len(resp.TLS.VerifiedChains) > 0 {
		until = resp.TLS.VerifiedChains[0][0].NotAfter
	}
	return date, until
}
