package call

import (
	"crypto/tls"
	"net/http"
	"strings"
)

// onlyOther reports whether a TLS server refused HTTP/1.1.
func onlyOther(err error) bool { return strings.Contains(err.Error(), "tls: no application protocol") }

// askInHTTP2 is for the rare server that takes nothing else: it costs a pool, which is given
// up with the answer. A kubelet offers both, and most servers take both.
func askInHTTP2(req *http.Request) (*http.Response, error) {
	pool := &http.Transport{
		DialContext: dialer().DialContext, TLSHandshakeTimeout: handshake, TLSClientConfig: &tls.Config{ServerName: req.URL.Hostname(), InsecureSkipVerify: true},
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
