package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
)

// A Server is an API server in memory. Its methods are safe for concurrent use.
type Server struct {
	// Fault, if set, is called before each request. It returns true if it has answered the request.
	Fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]

	// If this field is true, the server serves ClusterTrustBundles and PodCertificateRequests only as v1beta1, as Kubernetes 1.36 does.
	// Otherwise it serves them only as v1.
	Former atomic.Bool

	// NoWatchList makes the server reject watches with initial events. A real server does the same if its feature gate WatchList is off.
	NoWatchList atomic.Bool

	http     *http.Server
	listener *listener
	codecs   serializer.CodecFactory
	isDown   atomic.Bool
	sent     atomic.Int64
	received atomic.Int64

	mu        sync.Mutex
	version   int64
	compacted int64
	objects   map[key]object
	index     map[topic]map[key]struct{}
	log       map[topic][]change
	changed   map[topic]chan struct{} // closed at the next change
	pages     map[string]page         // key: continue token
	requests  map[string]int
	conns     map[net.Conn]struct{}
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	scheme := runtime.NewScheme()
	adders := []func(*runtime.Scheme) error{
		v1.AddToScheme, coordinationv1.AddToScheme, nodev1.AddToScheme, storagev1.AddToScheme, certificatesv1.AddToScheme,
		metav1.AddMetaToScheme,
	}
	for _, add := range adders {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	former := schema.GroupVersion{Group: certificatesv1.GroupName, Version: "v1beta1"}
	scheme.AddKnownTypes(former, &certificatesv1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundleList{},
		&certificatesv1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequestList{})
	metav1.AddToGroupVersion(scheme, former)
	s := &Server{
		listener: &listener{conns: make(chan net.Conn), closed: make(chan struct{})}, codecs: serializer.NewCodecFactory(scheme),
		objects: map[key]object{}, index: map[topic]map[key]struct{}{}, log: map[topic][]change{}, changed: map[topic]chan struct{}{},
		pages: map[string]page{}, requests: map[string]int{}, conns: map[net.Conn]struct{}{}, version: 100,
	}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		s.CloseConnections()
		_ = s.http.Close()
		<-ended
	})
	return s
}

// Client returns a client of the server. Its connections end with the test.
func (s *Server) Client(t testing.TB) *kube.Client {
	cfg := &rest.Config{Host: "http://127.0.0.1:1", Dial: s.Dial}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return cfg, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseConnections)
	return c
}

// Disconnect makes the server unreachable. Open connections stay open until CloseConnections and transfer no data.
func (s *Server) Disconnect() { s.isDown.Store(true) }

// Reconnect makes the server reachable.
func (s *Server) Reconnect() { s.isDown.Store(false) }

// CloseConnections closes all connections.
func (s *Server) CloseConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// Bytes returns the number of bytes that clients have sent and received, without the overhead of
// TLS, TCP and IP.
func (s *Server) Bytes() (sent, received int64) { return s.sent.Load(), s.received.Load() }

// Requests returns the number of requests of one type, which is given as method and resource, such as "PATCH pods/status". The method of a
// watch is "WATCH".
func (s *Server) Requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[what]
}

// Total returns the number of all requests.
func (s *Server) Total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.requests {
		n += m
	}
	return n
}

// Dial connects to the server. It ignores the address.
func (s *Server) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	if s.isDown.Load() {
		return nil, fmt.Errorf("dial %s: no route to host", address)
	}
	near, far := net.Pipe()
	select {
	case s.listener.conns <- far:
	case <-s.listener.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &requestCount{Conn: near, s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDown.Load() { // Disconnect was called in the meantime, so CloseConnections may miss this connection
		_ = near.Close()
		return nil, fmt.Errorf("dial %s: no route to host", address)
	}
	s.conns[c] = struct{}{}
	return c, nil
}

type requestCount struct {
	net.Conn
	s *Server
}

// Read also counts the bytes that the client receives.
func (c *requestCount) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.s.received.Add(int64(n))
	return n, err
}

// Write also counts the bytes that the client sends.
func (c *requestCount) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.s.sent.Add(int64(n))
	return n, err
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns a placeholder.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
