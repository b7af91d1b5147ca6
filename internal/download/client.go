package download

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxRedirects = 5
	// maxHeaders is the maximum size of a response's headers, in bytes.
	maxHeaders = 64 << 10
)

// NewClient returns a client that checks certificates with the clock in the parameter now. The system clock is not used, because without a
// real-time clock it may be so wrong that no certificate seems valid. The client follows redirects as Restrict describes.
func NewClient(now func() time.Time) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeaders
	t.DisableCompression = true // archives and layers are compressed
	t.TLSClientConfig = &tls.Config{Time: now, MinVersion: tls.VersionTLS12}
	return Restrict(&http.Client{Transport: t})
}

// Restrict returns a copy of a client that follows only redirects to URLs that CheckURL accepts, and none from https to http.
func Restrict(c *http.Client) *http.Client {
	out := *c
	out.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if err := CheckRedirect(r, via); err != nil {
			return err
		}
		if err := CheckURL(r.URL); err != nil {
			return fmt.Errorf("redirect to %s://%s: %w", r.URL.Scheme, r.URL.Host, err)
		}
		return nil
	}
	return &out
}

// CheckRedirect returns an error for a redirect from https to http, and after maxRedirects redirects. It removes the URL of the former
// request from a request to another host, because its query may be a secret.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	first := via[0].URL
	if first.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("a redirect from https to " + r.URL.Scheme + " is not followed")
	}
	if LeftHost(r, via) {
		r.Header.Del("Referer")
	}
	return nil
}

// LeftHost reports whether a redirect has led to another host or scheme, even if it has led back.
func LeftHost(r *http.Request, via []*http.Request) bool {
	first := via[0].URL
	for _, q := range append(via[:len(via):len(via)], r) {
		if q.URL.Host != first.Host || q.URL.Scheme != first.Scheme {
			return true
		}
	}
	return false
}

// CheckURL returns an error unless the URL has the scheme https or refers to this machine. The error does not contain the URL.
func CheckURL(u *url.URL) error {
	switch ip := net.ParseIP(u.Hostname()); {
	case u.Host == "":
		return errors.New("the URL has no host")
	case u.Scheme == "https":
	case u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
	default:
		return errors.New("only https URLs are allowed, and http URLs of this machine: localhost, 127.0.0.1 and [::1]")
	}
	return nil
}

// Redact returns a URL without the user, the password, the query and the fragment, because each of them may be a token. If a slash is
// missing before the host, such as in https:/user:password@host/, they are in the path, so the result has only the scheme.
func Redact(u *url.URL) string {
	if u.Host == "" && (u.Opaque != "" || strings.Contains(u.Path, "@")) {
		return u.Scheme + ":..."
	}
	out := *u
	out.User, out.RawQuery, out.Fragment = nil, "", ""
	return out.String()
}

// NewPollClient returns a client as NewClient does, for small requests at an interval. It keeps one connection between two requests and the
// session of TLS, because a handshake costs more bytes than a request. It sends no probes over an idle connection. It uses HTTP/1.1, where
// a connection that has been lost costs only one request.
func NewPollClient(now func() time.Time, interval time.Duration) *http.Client {
	c := NewClient(now)
	t := c.Transport.(*http.Transport)
	t.DialContext = (&net.Dialer{Timeout: MaxSilence / 2, KeepAlive: -1}).DialContext
	t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = 2*interval, 1, 1
	t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	return c
}
