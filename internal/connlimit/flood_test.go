package connlimit

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A network is a network namespace with addresses of pods, of this machine and of other machines.
type network struct {
	*testing.T
	fd int
}

// newNetwork creates a network namespace for the duration of the test. The test needs root.
func newNetwork(t *testing.T, addrs ...string) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	n := &network{T: t}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		for _, args := range append([][]string{{"link", "set", "lo", "up"}}, addresses(addrs)...) {
			if err == nil {
				err = exec.Command("ip", args...).Run()
			}
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(n.fd) })
	return n
}

func addresses(all []string) (out [][]string) {
	for _, a := range all {
		out = append(out, []string{"address", "add", a + "/32", "dev", "lo"})
	}
	return out
}

// runIn calls f on a thread in the network namespace.
func (n *network) runIn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		f()
	}()
	<-done
}

// dial opens a connection from an address.
func (n *network) dial(from, to string) (c net.Conn, err error) {
	n.runIn(func() {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 20 * time.Second}
		c, err = d.Dial("tcp", to)
	})
	return c, err
}

// A stall is the behaviour of a client that sends a part of its request and then no more data.
type stall func(c net.Conn)

func inHandshake(net.Conn) {}

func inHeaders(c net.Conn) {
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	io.WriteString(t, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
}

func betweenRequests(c net.Conn) {
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	io.WriteString(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	t.Read(make([]byte, 1))
}

// flood opens connections from an address until the context ends. It replaces closed connections.
func (n *network) flood(ctx context.Context, from, to string, how stall, held *atomic.Int64) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var all sync.WaitGroup
	n.runIn(func() {
		slots := make(chan struct{}, 200)
		for ctx.Err() == nil {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c, err := d.DialContext(ctx, "tcp", to)
			if err != nil {
				<-slots
				continue
			}
			held.Add(1)
			stop := context.AfterFunc(ctx, func() { c.Close() })
			all.Go(func() {
				how(c)
				io.Copy(io.Discard, c)
				stop()
				c.Close()
				<-slots
			})
		}
	})
	all.Wait()
}

// TestFloods checks that an administrator with a new address is always served during a flood of connections. Two pods, and a user of this
// machine with two addresses, open as many connections as possible in every state. With ISLET_TEST_LONG, 20 administrators connect.
func TestFloods(t *testing.T) {
	addrs := []string{"10.42.0.5", "10.42.0.6", "192.0.2.10"}
	for i := range 20 {
		addrs = append(addrs, fmt.Sprintf("203.0.113.%d", i+1))
	}
	n := newNetwork(t, addrs...)
	var ln net.Listener
	n.runIn(func() {
		var err error
		if ln, err = net.Listen("tcp", "0.0.0.0:0"); err != nil {
			t.Error(err)
		}
	})
	l := Listen(ln, Config{PortName: "a test", MaxConnections: 256, Sessions: 16, Log: quiet})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "admin" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ReportAuthenticated(r.Context())
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.Config.ErrorLog = discardLog()
	srv.Config.IdleTimeout = time.Hour
	Watch(srv.Config)
	srv.StartTLS()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ctx, stop := context.WithCancel(t.Context())
	var floods sync.WaitGroup
	defer floods.Wait()
	defer stop()
	var held atomic.Int64
	for from, how := range map[string]stall{"10.42.0.5": inHandshake, "10.42.0.6": inHeaders, "127.0.0.2": betweenRequests, "127.0.0.3": inHandshake} {
		floods.Go(func() { n.flood(ctx, from, "192.0.2.10:"+port, how, &held) })
	}
	deadline := time.Now().Add(time.Minute)
	for fullLogged := false; !fullLogged; runtime.Gosched() {
		l.mu.Lock()
		fullLogged = len(l.conns) >= 250
		l.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("the floods do not fill the room: %d connections", held.Load())
		}
	}
	administrators := 6
	if os.Getenv("ISLET_TEST_LONG") != "" {
		administrators = 20
	}
	for i := range administrators {
		from, before := fmt.Sprintf("203.0.113.%d", i+1), held.Load()
		c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(context.Context, string, string) (net.Conn, error) { return n.dial(from, "192.0.2.10:"+port) }}}
		req, _ := http.NewRequest(http.MethodGet, "https://192.0.2.10:"+port, nil)
		req.Header.Set("Authorization", "admin")
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s, with %d connections of the floods: %v", from, before, err)
			continue
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", from, resp.Status)
		}
	}
	t.Logf("the floods made %d connections", held.Load())
}

// TestHijacked checks that a hijacked connection counts as a session and frees its place, also over TLS.
func TestHijacked(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		io.Copy(io.Discard, c) // until the client disconnects
		c.Close()
	}))
	l := Listen(srv.Listener, Config{PortName: "a test", MaxConnections: 4, Sessions: 64, Log: quiet})
	srv.Listener = l
	Watch(srv.Config)
	srv.StartTLS()
	defer srv.Close()
	var open []net.Conn
	for i := range 32 {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		open = append(open, c)
	}
	l.mu.Lock()
	if l.sessions != 32 || len(l.conns) != 0 {
		t.Errorf("%d sessions, %d connections", l.sessions, len(l.conns))
	}
	l.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}
