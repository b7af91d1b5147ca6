package call

import (
	"crypto/tls"
	"net/http"
	"strings"
)

// wantsHTTP2 reports whether a call failed because the TLS server does not speak HTTP/1.1.
func wantsHTTP2(err error) bool { return strings.Contains(err.Error(), "tls: no application protocol") }

// callByHTTP2 repeats a call for a server that speaks HTTP/2 only, which is rare. Its pool of
// connections is closed with the answer. A kubelet offers both protocols at once; most servers
// speak both.
func callByHTTP2(req *http.Request) (*http.Response, error) {
	pool := &http.Transport{
		DialContext: dialer().DialContext, TLSHandshakeTimeout: handshake,
		TLSClientConfig:   &tls.Config{ServerName: req.URL.Hostname(), InsecureSkipVerify: true},
		ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	resp, err := pool.RoundTrip(req)
	if err != nil {
		pool.CloseIdleConnections()
		return nil, err
	}
	closing := resp.Body.Close
	resp.Body = &body{resp.Body, req.Context(), func() error { defer pool.CloseIdleConnections(); return closing() }}
	return resp, nil
}
