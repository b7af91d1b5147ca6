package call

import (
	"crypto/tls"
	"net/http"
	"strings"
)

// wantsHTTP2 reports whether a call failed because the TLS server does not support HTTP/1.1.
func wantsHTTP2(err error) bool { return strings.Contains(err.Error(), "tls: no application protocol") }

// callByHTTP2 makes a call by HTTP/2, either without TLS or to a TLS server that supports only HTTP/2. Both
// cases are rare. The connection pool is closed together with the response. A kubelet offers both protocols
// in one TLS handshake.
func callByHTTP2(req *http.Request) (*http.Response, error) {
	pool := &http.Transport{
		DialContext: newDialer().DialContext, TLSHandshakeTimeout: handshakeTimeout,
		TLSClientConfig:   &tls.Config{ServerName: req.URL.Hostname(), InsecureSkipVerify: true},
		ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	if req.URL.Scheme == "http" {
		pool.Protocols = new(http.Protocols)
		pool.Protocols.SetUnencryptedHTTP2(true)
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
