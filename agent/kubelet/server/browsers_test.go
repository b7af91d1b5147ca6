package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestBrowsers checks that a web page, in a browser with a client certificate, can only read the status page. Other clients, and browsers
// that use the API server, can use all paths.
func TestBrowsers(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) {
		c.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })
	}))
	const (
		foreign = "https://elsewhere.example"
		run     = "/run/default/web/nginx?cmd=ls"
		exec    = "/exec/default/web/nginx?command=echo&command=hi&output=1"
		forward = "/portForward/default/web?port=80"
	)
	own := "https://" + a.Addr
	type headers map[string]string
	proxied := func(h headers) headers {
		h["X-Forwarded-For"] = "192.0.2.1"
		return h
	}
	client := a.Client()
	for _, c := range []struct {
		method, path string
		headers      headers
		rejected     bool
	}{
		{"GET", "/page/", headers{"Sec-Fetch-Site": "none"}, false},
		{"GET", "/page/", headers{"Sec-Fetch-Site": "cross-site"}, false}, // a link
		{"HEAD", "/page/", headers{"Sec-Fetch-Site": "same-site"}, false},
		{"GET", "/page/data", headers{"Sec-Fetch-Site": "same-origin"}, false},
		{"GET", "/page/data", headers{"Sec-Fetch-Site": "same-origin", "Origin": own}, false},
		{"GET", "/page/log?namespace=default&pod=web", headers{"Sec-Fetch-Site": "cross-site"}, true},
		{"GET", "/page/", headers{"Sec-Fetch-Site": "cross-site", "Origin": foreign}, true},
		{"GET", "/page/", headers{"Origin": foreign}, true},
		{"POST", "/page/", headers{"Sec-Fetch-Site": "same-origin", "Origin": own}, true},
		{"GET", "/pods", headers{"Sec-Fetch-Site": "none"}, false}, // an entered address
		{"GET", "/pods", headers{"Sec-Fetch-Site": "same-origin"}, true},
		{"GET", "/pods", headers{"Sec-Fetch-Site": "cross-site"}, true},
		{"GET", "/pods", headers{"Sec-Fetch-Site": "new-value"}, true},
		{"GET", "/pods", headers{"Origin": "null"}, true},
		{"GET", "/pods", headers{"Origin": own}, true},
		{"GET", "/pods", nil, false},
		{"GET", "/pods", proxied(headers{"Sec-Fetch-Site": "same-origin"}), false},
		{"GET", "/logs/", headers{"Sec-Fetch-Site": "same-origin"}, true},
		{"POST", run, nil, false},
		{"POST", run, headers{"Sec-Fetch-Site": "none"}, true},
		{"POST", run, headers{"Sec-Fetch-Site": "cross-site", "Origin": foreign}, true},
		{"POST", run, headers{"Sec-Fetch-Site": "same-origin", "Origin": own}, true},
		{"POST", run, headers{"Origin": "null"}, true},
		{"POST", run, proxied(headers{"Sec-Fetch-Site": "same-origin", "Origin": foreign}), false},
		{"POST", run, headers{"Origin": foreign, "Authorization": "Bearer x"}, false},
		{"POST", run, headers{"Origin": foreign, "Authorization": "Basic eDp5"}, true}, // from https://x:y@NODE:10250/
		{"PUT", "/debug/flags/v", headers{"Origin": foreign}, true},
		{"OPTIONS", run, headers{"Origin": foreign, "Access-Control-Request-Headers": "x-forwarded-for"}, true},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, own+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.headers {
			req.Header.Set(k, v)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[c.rejected]; resp.StatusCode != want {
			t.Errorf("%s %s with %v: %d, want %d", c.method, c.path, c.headers, resp.StatusCode, want)
		}
	}
	for _, c := range []struct {
		path, protocol string
		headers        headers
		rejected       bool
	}{
		{exec, "v4.channel.k8s.io", headers{"Origin": foreign}, true},
		{exec, "v4.channel.k8s.io", headers{"Origin": own, "Sec-Fetch-Site": "same-origin"}, true},
		{exec, "v4.channel.k8s.io", headers{"Sec-Fetch-Site": "none"}, true},
		{exec, "v4.channel.k8s.io", proxied(headers{"Origin": foreign}), false},
		{exec, "v4.channel.k8s.io", headers{"Origin": foreign, "Authorization": "bearer x"}, false},
		{exec, "v4.channel.k8s.io", nil, false},
		{forward, "SPDY/3.1+portforward.k8s.io", headers{"Origin": foreign}, true},
		{forward, "SPDY/3.1+portforward.k8s.io", proxied(headers{"Origin": foreign}), false},
		{forward, "SPDY/3.1+portforward.k8s.io", nil, false},
		{strings.Replace(exec, "exec", "attach", 1), "v5.channel.k8s.io", headers{"Origin": foreign}, true},
	} {
		d, h := websocket.Dialer{TLSClientConfig: a.TLS(), Subprotocols: []string{c.protocol}}, http.Header{}
		for k, v := range c.headers {
			h.Set(k, v)
		}
		conn, resp, err := d.DialContext(t.Context(), "wss://"+a.Addr+c.path, h)
		if err == nil {
			conn.Close()
		}
		if resp == nil || (err != nil) != c.rejected || c.rejected && resp.StatusCode != http.StatusForbidden {
			t.Errorf("WebSocket %s with %v: %v %+v, want it to be rejected: %v", c.path, c.headers, err, resp, c.rejected)
		}
	}
	n.Runtime.Streams.Wait()
}
