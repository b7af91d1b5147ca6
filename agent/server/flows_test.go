package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/server/servertest"
	"github.com/islet-edge/islet/door"
)

// A flow is a way by which a client of port 10250 gets bytes.
type flow struct {
	name string
	// give is the path of one that ends by itself after servertest.Given bytes, flood that of one that does not.
	give, flood string
	// get returns all bytes and, once the server has ended them in order, the code of the end.
	get   func(t *testing.T, a *secured, path string) (out []byte, code int, err error)
	code  int  // of give
	blind bool // its client takes the end of a connection for that of the bytes
}

// flows are all that there are: each verb by each protocol that a kubelet serves or client-go speaks.
func flows() (all []flow) {
	for _, verb := range []string{"exec", "attach"} {
		f := flow{
			give:  fmt.Sprintf("/exec/default/web/nginx?command=give&command=%d&command=7&output=1&error=1", servertest.Given),
			flood: "/exec/default/web/flood?command=flood&output=1&error=1", code: 7,
		}
		if verb == "attach" { // whose end is not that of the container
			f.give, f.flood, f.code = "/attach/default/web/nginx?output=1&error=1", "/attach/default/web/flood?output=1&error=1", 0
		}
		add := func(name string, get func(*testing.T, *secured, string) ([]byte, int, error)) {
			f.name, f.get = verb+" by "+name, get
			all = append(all, f)
		}
		add("client-go's WebSocket", getWebSocket)
		for _, p := range []string{"", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "v5.channel.k8s.io"} {
			add("WebSocket "+p, func(t *testing.T, a *secured, path string) ([]byte, int, error) { return getChannels(t, a, path, p) })
		}
		for _, p := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"} {
			if p == "channel.k8s.io" { // its client does not wait for the output of a command that fails
				f.give, f.code = strings.Replace(f.give, "command=7", "command=0", 1), 0
			}
			f.blind = true
			add("SPDY "+p, func(t *testing.T, a *secured, path string) ([]byte, int, error) { return getSPDY(t, a, path, p) })
		}
	}
	const forward = "/portForward/default/web?port="
	f := flow{blind: true, give: forward + fmt.Sprint(servertest.PortGives), flood: forward + fmt.Sprint(servertest.PortFloods)}
	for _, p := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		f.name = "port-forward by WebSocket " + p
		f.get = func(t *testing.T, a *secured, path string) ([]byte, int, error) {
			return getPortChannels(t, a, path, p)
		}
		all = append(all, f)
	}
	for name, dialer := range map[string]portDialer{"SPDY": spdyDialer, "a tunnel": tunnelDialer} {
		f.name = "port-forward by " + name
		f.get = func(t *testing.T, a *secured, path string) ([]byte, int, error) { return getPort(t, a, path, dialer) }
		all = append(all, f)
	}
	const logs = "/containerLogs/default/web/%s?follow=true"
	f = flow{give: fmt.Sprintf(logs, "nginx"), flood: fmt.Sprintf(logs, "flood")}
	for _, version := range []int{1, 2} {
		f.name = fmt.Sprintf("logs by HTTP/%d", version)
		f.get = func(t *testing.T, a *secured, path string) ([]byte, int, error) { return getLog(t, a, path, version) }
		all = append(all, f)
	}
	return all
}

// A port10250 counts the requests that it serves.
type port10250 struct {
	*secured
	begun  chan struct{}
	served sync.WaitGroup
}

// silence is how long a client of these tests may leave everything unanswered.
const silence = 2 * time.Second

func openFlows(t *testing.T, n *servertest.Node) *port10250 {
	p := &port10250{begun: make(chan struct{}, 1)}
	p.secured = openAPIBy(t, func(ctx context.Context, ln net.Listener, c *tls.Config, guard func(http.Handler) http.Handler) error {
		room := door.Listen(ln.(*door.Listener).Listener, door.Config{What: "a test", Most: 64, Sessions: 64, Silence: silence, Log: quiet})
		return n.Server.RunAPI(ctx, room, c, func(h http.Handler) http.Handler {
			return guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p.served.Add(1)
				defer p.served.Done()
				select {
				case p.begun <- struct{}{}:
				default:
				}
				h.ServeHTTP(w, r)
			}))
		})
	})
	return p
}

// logged is the log of the container nginx.
func logged() []byte {
	line := string(servertest.Bytes(8<<10-16)) + "the end of line"
	return []byte(strings.Repeat(line+"\n", servertest.Given/(len(line)+1)))
}

// flowNode is a node whose containers nginx and flood give bytes and have logs.
func flowNode(t *testing.T) *servertest.Node {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx", "flood")
	lines := strings.Split(strings.TrimSuffix(string(logged()), "\n"), "\n")
	n.Log(t, "web-nginx", lines...)
	for range 64 { // more than fits into the kernels on the way
		n.Log(t, "web-flood", lines...)
	}
	n.Runtime.Exit("web-nginx")
	return n
}

// TestFlows: by every way and every version of every protocol a client that reads slowly, or stops,
// gets each byte and the code; one that hangs up, or vanishes, gets no success, and ends what
// the server does for it.
func TestFlows(t *testing.T) {
	n := flowNode(t)
	for name, read := range map[string]reader{"slow": slow, "stops": stops} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := openFlows(t, n)
			to := &secured{addr: link(t.Context(), t, a.addr, read), ca: a.ca, cert: a.cert}
			var all sync.WaitGroup
			for _, f := range flows() {
				all.Go(func() {
					want := servertest.Bytes(servertest.Given)
					if strings.HasPrefix(f.name, "logs") {
						want = logged()
					}
					if out, code, err := f.get(t, to, f.give); err != nil || code != f.code || !bytes.Equal(out, want) {
						t.Errorf("%s: %d of %d bytes, code %d, want %d, %v", f.name, len(out), len(want), code, f.code, err)
					}
				})
			}
			all.Wait()
		})
	}
	for name, read := range map[string]reader{"closes": closes, "vanishes": vanishes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for _, f := range flows() {
				a := openFlows(t, n)
				ctx, hangUp := context.WithCancel(t.Context())
				to := &secured{addr: link(ctx, t, a.addr, read), ca: a.ca, cert: a.cert}
				all.Go(func() {
					leave(t, a, to, f, hangUp)
				})
			}
			all.Wait()
		})
	}
}

// leave has a client of a flow that has no end go.
func leave(t *testing.T, a *port10250, to *secured, f flow, hangUp func()) {
	got := make(chan error, 1)
	go func() {
		out, code, err := f.get(t, to, f.flood)
		if err == nil && !f.blind {
			got <- fmt.Errorf("a success after %d bytes, with code %d", len(out), code)
		}
		close(got)
	}()
	<-a.begun
	ended := make(chan struct{})
	go func() { a.served.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute): // the kernel alone takes a quarter of an hour
		t.Errorf("%s: the server is still at it", f.name)
	}
	hangUp()
	if err := <-got; err != nil {
		t.Errorf("%s: %v", f.name, err)
	}
}
