package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// A Proxy forwards requests of nodes to the API server. Like any authenticating proxy, it authenticates nodes by
// their client certificates and sends their names to the API server. So nodes cannot distinguish the proxy from the
// API server until a test simulates a fault.
type Proxy struct {
	Addr string // the address that nodes use instead of the API server's

	mu       sync.Mutex
	status   int // the HTTP status of every response; 0 means that requests are forwarded
	retry    time.Duration
	delay    time.Duration
	ahead    time.Duration // the offset of the time in responses
	requests map[string]int
}

// Proxy starts a proxy that runs until the test ends.
func (c *Cluster) Proxy(t testing.TB) *Proxy {
	t.Helper()
	c.mu.Lock()
	c.ports++
	p := &Proxy{Addr: fmt.Sprintf("%s:%d", gateway, 7000+c.ports), requests: map[string]int{}}
	c.mu.Unlock()
	serving, err := tls.LoadX509KeyPair(c.path("pki/apiserver.crt"), c.path("pki/apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	front, err := tls.LoadX509KeyPair(c.path("pki/front-proxy-client.crt"), c.path("pki/front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.path("pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	var l net.Listener
	if err := machine.InNetwork(c.host.Pid(), func() error { l, err = net.Listen("tcp", p.Addr); return err }); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		DialContext:       c.Dial,
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{front}},
		ForceAttemptHTTP2: true,
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: gateway + ":6443"})
			setUser(r)
		},
		Transport:      transport,
		ModifyResponse: p.setDate,
		FlushInterval:  -1, // needed for watches
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	srv := &http.Server{
		Handler:   p.fault(forward),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven},
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		srv.Close()
		transport.CloseIdleConnections()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p
}

// setUser sets the headers with the user and groups of the node's certificate. It adds no headers to a request
// with a token, because the API server authenticates the token.
func setUser(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Out.Header.Del(name)
		}
	}
	if len(r.In.TLS.PeerCertificates) == 0 {
		return
	}
	subject := r.In.TLS.PeerCertificates[0].Subject
	r.Out.Header.Set("X-Remote-User", subject.CommonName)
	for _, group := range subject.Organization {
		r.Out.Header.Add("X-Remote-Group", group)
	}
}

// fault returns a handler that counts each request and then delays, answers or forwards it, as the faults of the test require.
func (p *Proxy) fault(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests[kindOf(r)]++
		status, retry, delay := p.status, p.retry, p.delay
		p.mu.Unlock()
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-r.Context().Done():
				return
			}
		}
		if status == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if retry > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(retry.Seconds())))
		}
		http.Error(w, "fault injected by the test", status)
	})
}

// kindOf returns the method and path of a request, and the object's name if the request selects one
// object of a list.
func kindOf(r *http.Request) string {
	method, q := r.Method, r.URL.Query()
	if q.Get("watch") == "true" {
		method = "WATCH"
	}
	if f := q.Get("fieldSelector"); f != "" {
		return method + " " + r.URL.Path + "?" + f
	}
	return method + " " + r.URL.Path
}

// Fail makes the proxy respond to every new request with the given status. If retry is not zero,
// the response contains a Retry-After.
func (p *Proxy) Fail(status int, retry time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.retry = status, retry
}

// setDate changes the time in a response.
func (p *Proxy) setDate(r *http.Response) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ahead != 0 {
		r.Header.Set("Date", time.Now().Add(p.ahead).UTC().Format(http.TimeFormat))
	}
	return nil
}

// SetAhead adds an offset to the time in responses, so that the nodes' own clocks seem to be slow.
func (p *Proxy) SetAhead(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = d
}

// Delay delays every new request.
func (p *Proxy) Delay(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// Heal ends all faults: Fail, Delay and SetAhead.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.retry, p.delay, p.ahead = 0, 0, 0, 0
}

// Requests returns the number of requests since the last call, by kind and in total. A kind consists of the method, the path and the
// selected object of a request.
func (p *Proxy) Requests() (byKind map[string]int, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	byKind, p.requests = p.requests, map[string]int{}
	for n := range maps.Values(byKind) {
		total += n
	}
	return byKind, total
}
