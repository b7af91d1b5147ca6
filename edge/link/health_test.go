package link

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
)

// A cable is a TCP proxy in front of the server. A test can interrupt it.
type cable struct {
	t      *testing.T
	ln     net.Listener
	server string

	mu    sync.Mutex
	conns []net.Conn
	deaf  atomic.Int64 // the connections with a number up to this one drop all data
	count atomic.Int64
	cut   atomic.Bool // whether new connections are closed immediately
}

func newCable(w *world) *cable {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	c := &cable{t: w.t, ln: ln, server: w.server.Listener.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.forward(conn) })
		}
	})
	w.t.Cleanup(func() {
		ln.Close()
		c.drop()
		all.Wait()
	})
	w.server.URL = "https://" + ln.Addr().String()
	return c
}

func (c *cable) forward(conn net.Conn) {
	number := c.count.Add(1)
	far, err := net.Dial("tcp", c.server)
	if err != nil {
		conn.Close()
		return
	}
	c.mu.Lock() // holds the lock, so that a connection that was just accepted is closed too
	whole := !c.cut.Load()
	if whole {
		c.conns = append(c.conns, conn, far)
	}
	c.mu.Unlock()
	if !whole {
		conn.Close()
		far.Close()
		return
	}
	pump := func(to, from net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if number <= c.deaf.Load() {
				_, _ = io.Copy(io.Discard, from) // the data is dropped
				return
			}
			if n > 0 {
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				to.Close()
				return
			}
		}
	}
	var both sync.WaitGroup
	both.Go(func() { pump(far, conn) })
	pump(conn, far)
	both.Wait()
}

// drop closes all connections.
func (c *cable) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func (w *world) member() Config {
	cfg := w.config()
	cert, key := w.server.CA.Client(w.t, "system:node:n", []string{"system:nodes"}, time.Now(), time.Now().Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	return cfg
}

func get(ctx context.Context, l *Link) error {
	_, err := kube.Get[corev1.Node](ctx, l.Client(), "", "n")
	return err
}

// TestCutAndBack checks that the node sends only probes while its connection is cut. Other requests fail immediately. The link is up again
// within seconds after the connection is restored.
func TestCutAndBack(t *testing.T) {
	w := newWorld(t)
	c := newCable(w)
	l, _ := w.start(w.member())
	changed := l.Changed().C
	await(t, l, up)
	c.cut.Store(true)
	c.drop()
	for get(t.Context(), l) == nil {
	}
	s := await(t, l, func(s State) bool { return s.Phase == Down })
	if s.Reason != ReasonUnreachable || s.Message == "" {
		t.Errorf("got %+v", s)
	}
	<-changed
	before, began := c.count.Load(), time.Now()
	for range 1000 {
		if err := get(t.Context(), l); !errors.Is(err, kube.ErrNoLink) || kube.IsAnswer(err) {
			t.Fatalf("got %v", err)
		}
	}
	// The node sends a few probes in the first seconds. Each probe opens two connections.
	if n := c.count.Load() - before; n > 20+int64(time.Since(began)/time.Second) {
		t.Errorf("a thousand requests made %d connections", n)
	}
	c.cut.Store(false)
	await(t, l, up)
	if err := get(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// TestHalfOpen checks a network that drops all data of existing connections and accepts new ones. The node detects this when a single
// request times out. It then ends its watches, which would wait forever.
func TestHalfOpen(t *testing.T) {
	w := newWorld(t)
	c := newCable(w)
	events := make(chan watch.Event)
	w.server.Mux.HandleFunc("GET /api/v1/pods", func(rw http.ResponseWriter, r *http.Request) { w.server.Watch(rw, r, events) })
	l, _ := w.start(w.member())
	await(t, l, up)
	pods, err := kube.Watch[corev1.Pod](t.Context(), l.Client(), "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	began := time.Now()
	c.deaf.Store(c.count.Load())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := get(ctx, l); err == nil {
		t.Fatal("want no answer")
	}
	for range pods.ResultChan() {
	}
	await(t, l, up)
	if err := get(t.Context(), l); err != nil {
		t.Error(err)
	}
	t.Logf("found and healed after %s", time.Since(began).Round(time.Millisecond))
}

// TestFlapping checks that a flapping link causes few probes, however many requests fail. A probe opens at most two connections. A correct
// node sends ten or more probes in five seconds with a probability of less than one in ten thousand.
func TestFlapping(t *testing.T) {
	w := newWorld(t)
	c := newCable(w)
	l, _ := w.start(w.member())
	await(t, l, up)
	before := c.count.Load()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for cut := true; sleep(ctx, 100*time.Millisecond); cut = !cut {
		c.cut.Store(cut)
		c.drop()
		l.health.evaluateResult(0, io.ErrUnexpectedEOF) // reports a failed request
	}
	if n := c.count.Load() - before; n == 0 || n > 20 {
		t.Errorf("%d connections in five seconds", n)
	}
	c.cut.Store(false)
	await(t, l, up)
}

// ready handles requests like a server that is ready. It answers /readyz with "ok" and every other request with a Node.
func (w *world) ready(rw http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/readyz") {
		_, _ = io.WriteString(rw, "ok")
		return
	}
	w.server.Write(rw, r, 200, &corev1.Node{})
}

// TestServerInTrouble checks a server that returns errors. The node waits for the time in the Retry-After header before it tries again.
func TestServerInTrouble(t *testing.T) {
	w := newWorld(t)
	var sick atomic.Bool
	probes := make(chan time.Time, 100)
	w.server.Mux = http.NewServeMux()
	w.server.Mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/readyz") {
			probes <- time.Now()
		}
		if sick.Load() {
			rw.Header().Set("Retry-After", "2")
			http.Error(rw, "etcd", http.StatusServiceUnavailable)
			return
		}
		w.ready(rw, r)
	})
	l, _ := w.start(w.member())
	await(t, l, up)
	l.states.mu.Lock()
	l.states.state.Since = time.Now().Add(-2 * doubtTime) // the link has been up for a long time
	l.states.mu.Unlock()
	sick.Store(true)
	for len(probes) > 0 {
		<-probes
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := get(ctx, l); err == nil {
		t.Fatal("want an error")
	}
	s := await(t, l, func(s State) bool { return s.Phase == Down })
	if s.Reason != ReasonNotReady || !strings.Contains(s.Message, "503") {
		t.Errorf("got %+v", s)
	}
	if first, second := <-probes, <-probes; second.Sub(first) < 2*time.Second {
		t.Errorf("asked again after %s", second.Sub(first))
	}
	sick.Store(false)
	await(t, l, up)
}

// TestCaptivePortal checks a server with a valid certificate that responds with a web page. The link is down and reports the web page until
// the API server responds again.
func TestCaptivePortal(t *testing.T) {
	w := newWorld(t)
	var portal atomic.Bool
	portal.Store(true)
	w.server.Mux = http.NewServeMux()
	w.server.Mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if portal.Load() {
			rw.Header().Set("Content-Type", "text/html")
			_, _ = rw.Write([]byte("<html>Accept our terms</html>"))
			return
		}
		w.ready(rw, r)
	})
	l, _ := w.start(w.member())
	for range 2 {
		s := await(t, l, func(s State) bool { return s.Phase == Down })
		if s.Reason != ReasonNotServer || !strings.Contains(s.Message, "web page") {
			t.Errorf("got %+v", s)
		}
		portal.Store(false)
		signalChannel(l.health.retryRequest)
		await(t, l, up)
		l.states.mu.Lock()
		l.states.state.Since = time.Now().Add(-2 * doubtTime) // the link has been up for a long time
		l.states.mu.Unlock()
		portal.Store(true)
		if err := get(t.Context(), l); !errors.Is(err, kube.ErrNotServer) && !errors.Is(err, kube.ErrNoLink) {
			t.Errorf("the page counts as an answer: %v", err)
		}
	}
}

// TestUnauthorized checks that the state of the link contains the reason if the server rejects the credential. The node sends probes at a
// low rate.
func TestUnauthorized(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{Token: "of somebody else"})
	l, _ := w.start(cfg)
	if s := await(t, l, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonUnauthorized {
		t.Errorf("got %+v", s)
	}
}

// TestForeignServer checks that the node sends no request to a server whose certificate another CA has signed. The certificate does not
// correct the clock.
func TestForeignServer(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	from := time.Now().Add(48 * time.Hour)
	cert := other.server.CA.Server(t, from, "127.0.0.1")
	w.server.Certificate = &cert
	l, _ := w.start(w.member())
	if s := await(t, l, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonServerCertificate {
		t.Errorf("got %+v", s)
	}
	if !l.Now().Before(from.Add(-time.Hour)) {
		t.Error("a server of another CA has set the clock")
	}
}

// TestClockBehind checks that the server's certificate corrects the clock of a machine that has lost its time. The cluster's CA has signed
// the certificate, which is not valid yet by the machine's clock.
func TestClockBehind(t *testing.T) {
	w := newWorld(t)
	from := time.Now().Add(48 * time.Hour)
	cert := w.server.CA.Server(t, from, "127.0.0.1")
	w.server.Certificate = &cert
	w.now = func() time.Time { return from }
	cfg := w.config()
	c, k := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now(), from.Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: c, ClientKeyData: k})
	l, stop := w.start(cfg)
	await(t, l, up)
	if now := l.Now(); now.Before(from.Add(-2 * time.Minute)) {
		t.Errorf("it is %s, not %s", from, now)
	}
	stop()
	l, _ = w.start(cfg)
	await(t, l, up)
	if now := l.Now(); now.Before(from.Add(-2 * time.Minute)) {
		t.Errorf("after a restart it is %s", now)
	}
}

// TestNetworkChanges checks what the link does after a network change. If the change does not affect the connection to the server, such as
// a change of a pod network, the node only sends a probe. If the change breaks the connection, the link is Down.
func TestNetworkChanges(t *testing.T) {
	w := newWorld(t)
	c := newCable(w)
	probes := make(chan Phase, 100)
	var l *Link
	var ready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/readyz") && ready.Load() {
			probes <- l.State().Phase
		}
		w.ready(rw, r)
	})
	w.server.Mux = mux
	network := make(chan struct{}, 1)
	cfg := w.member()
	cfg.NetworkChanged = network
	l, _ = w.start(cfg)
	before := await(t, l, up)
	ready.Store(true)
	for range 2 {
		network <- struct{}{}
		if phase := <-probes; phase != Up {
			t.Errorf("the link is %s while it is looked at", phase)
		}
	}
	if s := l.State(); s != before {
		t.Errorf("%+v has become %+v", before, s)
	}
	c.cut.Store(true)
	c.drop()
	network <- struct{}{}
	if s := await(t, l, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonUnreachable {
		t.Errorf("got %+v", s)
	}
}
