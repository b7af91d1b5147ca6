package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Bounds of what a server may send beside the body, and of how often it may send the
// caller on.
const (
	maxHeader    = 64 << 10
	maxRedirects = 10
)

// A Response is the answer to an HTTP request.
type Response struct {
	Code int
	Body string // its beginning
}

// Purposes of HTTP requests, which servers are told in the header User-Agent.
const (
	Probe     = "probe"
	Lifecycle = "lifecycle"
)

// Get sends the request of an action and reads the answer, whatever its status. A
// timeout of 0 is none but ctx. Redirects are followed as long as they lead to the host
// of the action; another one is the answer. The certificate of an HTTPS server is not
// checked, for nobody could say whose it has to be.
// https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes
func (c *Caller) Get(ctx context.Context, t Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (Response, error) {
	req, err := c.request(t, a, purpose)
	if err != nil {
		return Response{}, err
	}
	within, stop := within(ctx, timeout)
	defer stop()
	late := func(err error, when string) error { // in the words of net/http, which people search for
		if within.Err() == nil || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w (Client.Timeout %s)", err, when)
	}
	client := http.Client{Transport: exchange{}, CheckRedirect: sameHost}
	resp, err := client.Do(req.WithContext(within))
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.Err = late(failed.Err, "exceeded while awaiting headers")
	}
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxOutput))
	if err != nil {
		return Response{}, &marked{late(err, "or context cancellation while reading body"), ErrBroken}
	}
	return Response{resp.StatusCode, string(body)}, nil
}

func (c *Caller) request(t Target, a *v1.HTTPGetAction, purpose string) (*http.Request, error) {
	address, err := t.Address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil { // who serves it may understand it
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = "http", address
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &marked{err, ErrInvalid}
	}
	for _, h := range a.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", c.agent(purpose))
	}
	if req.Header["Accept"] == nil {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" { // asked to send none
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// sameHost lets a server send the caller on to itself only, on any port: a pod must not
// choose whom its node calls.
func sameHost(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
