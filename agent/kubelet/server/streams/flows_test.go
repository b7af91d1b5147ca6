package streams_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/connlimit"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// A flow is one way in which a client of port 10250 gets data.
type flow struct {
	streamtest.Way
	give, flood string // paths: the response of give ends by itself, that of flood does not
	code        int    // exit code of the response of give
	want        []byte // data in the response of give
}

// This helper returns the flows of all protocols.
func flows() (all []flow) {
	bytes := servertest.Bytes(servertest.OutputBytes)
	for _, w := range streamtest.Commands("v5.channel.k8s.io", "v5.channel.k8s.io") {
		f := flow{Way: w, flood: "/exec/default/web/flood?command=flood&output=1&error=1", want: bytes}
		if w.Coded {
			f.code = 7
		}
		f.give = fmt.Sprintf("/exec/default/web/nginx?command=give&command=%d&command=%d&output=1&error=1", servertest.OutputBytes, f.code)
		f.Name = "exec by " + w.Name
		all = append(all, f)
		f.Name = "attach by " + w.Name // attach does not return the container's exit code
		f.give, f.flood, f.code = "/attach/default/web/nginx?output=1&error=1", "/attach/default/web/flood?output=1&error=1", 0
		all = append(all, f)
	}
	gives, floods := streamtest.Ports(servertest.PortGives), streamtest.Ports(servertest.PortFloods)
	for i, w := range gives {
		flood := floods[i].Get
		get := w.Get
		w.Name = "port-forward by " + w.Name
		w.Get = func(ctx context.Context, c *streamtest.Client, path string) ([]byte, int, error) {
			if strings.HasSuffix(path, fmt.Sprint(servertest.PortFloods)) {
				return flood(ctx, c, path)
			}
			return get(ctx, c, path)
		}
		const path = "/portForward/default/web?port=%d"
		all = append(all, flow{Way: w, give: fmt.Sprintf(path, servertest.PortGives), flood: fmt.Sprintf(path, servertest.PortFloods), want: bytes})
	}
	for _, version := range []int{1, 2} {
		const path = "/containerLogs/default/web/%s?follow=true"
		get := func(_ context.Context, c *streamtest.Client, path string) ([]byte, int, error) {
			out, err := getLog(c, path, version)
			return out, 0, err
		}
		all = append(all, flow{Way: streamtest.Way{Name: fmt.Sprintf("logs by HTTP/%d", version), Get: get},
			give: fmt.Sprintf(path, "ended"), flood: fmt.Sprintf(path, "flood"), want: logged()})
	}
	return all
}

func getLog(c *streamtest.Client, path string, version int) ([]byte, error) {
	tr := &http.Transport{TLSClientConfig: c.TLS.Clone(), ForceAttemptHTTP2: version == 2, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(c.Config.Host + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != version || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered by %s: %s", resp.Proto, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// This helper returns the log of the container "ended".
func logged() []byte {
	line := string(servertest.Bytes(8<<10-16)) + "the end of line\n"
	return []byte(strings.Repeat(line, servertest.OutputBytes/len(line)))
}

// flowNode returns a node with the containers nginx and flood, which write data, and the container ended. The last two have logs.
func flowNode(t *testing.T) *servertest.Node {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx", "flood", "ended")
	lines := strings.Split(strings.TrimSuffix(string(logged()), "\n"), "\n")
	n.Log(t, "web-ended", lines...)
	for range 64 { // more data than the kernel's buffers hold
		n.Log(t, "web-flood", lines...)
	}
	n.Runtime.Exit("web-ended")
	return n
}

// A port10250 is a server that counts its requests.
type port10250 struct {
	*servertest.API
	begun  chan struct{}
	served sync.WaitGroup
}

// silence is the time after which the server closes the connection of an unresponsive client.
const silence = 2 * time.Second

func openFlows(t *testing.T, n *servertest.Node) *port10250 {
	p := &port10250{begun: make(chan struct{}, 1)}
	p.API = servertest.OpenAPIBy(t, func(ctx context.Context, ln net.Listener, c *tls.Config, filter func(http.Handler) http.Handler) error {
		room := connlimit.Listen(ln.(*connlimit.Listener).Listener, connlimit.Config{PortName: "a test", MaxConnections: 64, Sessions: 64, Silence: silence, Log: slog.New(slog.DiscardHandler)})
		return n.Server.RunAPI(ctx, room, c, func(h http.Handler) http.Handler {
			return filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// client returns a client that is connected through a proxy. The given Reader determines how the proxy reads.
func (p *port10250) client(ctx context.Context, t *testing.T, read streamtest.Reader) *streamtest.Client {
	config := restConfig(t, p.API)
	config.Host = "https://" + streamtest.Link(ctx, t, p.Addr, read)
	return &streamtest.Client{Config: config, TLS: p.TLS()}
}

// TestFlows checks all flows with every version of each protocol. A client that reads slowly or pauses gets every byte and the exit code.
// If a client closes the connection or becomes unreachable, it sees no success, and the server ends its request.
func TestFlows(t *testing.T) {
	n := flowNode(t)
	for name, read := range map[string]streamtest.Reader{"slow": streamtest.ForwardSlowly, "stops": streamtest.ForwardWithPause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openFlows(t, n).client(t.Context(), t, read)
			var all sync.WaitGroup
			for _, f := range flows() {
				all.Go(func() {
					if out, code, err := f.Get(t.Context(), c, f.give); err != nil || code != f.code || !bytes.Equal(out, f.want) {
						t.Errorf("%s: %d of %d bytes, code %d, want %d, %v", f.Name, len(out), len(f.want), code, f.code, err)
					}
				})
			}
			all.Wait()
		})
	}
	for name, read := range map[string]streamtest.Reader{"closes": streamtest.ForwardThenClose, "vanishes": streamtest.ForwardThenVanish} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for _, f := range flows() {
				p := openFlows(t, n)
				ctx, hangUp := context.WithCancel(t.Context())
				c := p.client(ctx, t, read)
				all.Go(func() { leave(t, p, c, f, hangUp) })
			}
			all.Wait()
		})
	}
}

// leave requests an endless flow through a proxy that breaks the connection. It checks that the server then ends the request.
func leave(t *testing.T, p *port10250, c *streamtest.Client, f flow, hangUp func()) {
	got := make(chan error, 1)
	go func() {
		out, code, err := f.Get(t.Context(), c, f.flood)
		if err == nil && !f.Blind {
			got <- fmt.Errorf("a success after %d bytes, with code %d", len(out), code)
		}
		close(got)
	}()
	<-p.begun
	ended := make(chan struct{})
	go func() { p.served.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute): // the kernel alone would take 15 minutes
		t.Errorf("%s: the server still serves the request", f.Name)
	}
	hangUp()
	if err := <-got; err != nil {
		t.Errorf("%s: %v", f.Name, err)
	}
}
