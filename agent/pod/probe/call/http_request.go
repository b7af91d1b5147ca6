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

// Limits for the size of response headers and the number of redirects.
const (
	maxHeader    = 64 << 10
	maxRedirects = 10
)

// A Response is the answer to an HTTP request.
type Response struct {
	Code int
	Body string // its beginning
}

// Purposes of HTTP requests. They appear in the User-Agent header.
const (
	Probe     = "probe"
	Lifecycle = "lifecycle"
)

// Get sends the HTTP request of an action and returns the response, whatever its status. A timeout of 0 means
// that only ctx limits the call. It follows redirects to the host of the action. A redirect to another host
// is not followed, but returned as the response. It does not verify the certificate of an HTTPS server,
// because the pod's spec contains no CA.
func (c *Caller) Get(ctx context.Context, t Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (Response, error) {
	req, err := c.buildRequest(t, a, purpose)
	if err != nil {
		return Response{}, err
	}
	withTimeout, stop := withTimeout(ctx, timeout)
	defer stop()
	// timeoutError returns an error with the text that net/http uses, because users search for it.
	timeoutError := func(err error, when string) error {
		if withTimeout.Err() == nil || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w (Client.Timeout %s)", err, when)
	}
	client := http.Client{Transport: exchange{http2: c.wantsClearHTTP2(a, purpose)}, CheckRedirect: sameHost}
	resp, err := client.Do(req.WithContext(withTimeout))
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.Err = timeoutError(failed.Err, "exceeded while awaiting headers")
	}
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxOutput))
	if err != nil {
		return Response{}, &markedError{timeoutError(err, "or context cancellation while reading body"), ErrBroken}
	}
	return Response{resp.StatusCode, string(body)}, nil
}

// wantsClearHTTP2 reports whether a call must use HTTP/2 without TLS. A kubelet ignores the protocol of lifecycle hooks.
func (c *Caller) wantsClearHTTP2(a *v1.HTTPGetAction, purpose string) bool {
	return purpose == Probe && a.Protocol != nil && *a.Protocol == v1.HTTPProtocolHTTP2 && c.GateEnabled("H2CContainerProbe")
}

func (c *Caller) buildRequest(t Target, a *v1.HTTPGetAction, purpose string) (*http.Request, error) {
	address, err := t.Address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil { // the server may understand a path that is not a valid URL
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = "http", address
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &markedError{err, ErrInvalid}
	}
	for _, h := range a.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", c.userAgent(purpose))
	}
	if req.Header["Accept"] == nil {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" { // an empty value means that no Accept header is sent
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// sameHost allows redirects only to the same host, on any port, so that a pod cannot make the node call other hosts.
func sameHost(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
