package supervisor

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/islet-edge/islet/internal/k3s"
)

// sessions makes a server send the sessions of nodes on a channel.
func sessions(w *world) <-chan *websocket.Conn {
	open := make(chan *websocket.Conn, 10)
	w.Connect = func(a http.ResponseWriter, r *http.Request) {
		if w.NodeOf(r) != "pi" {
			w.t.Errorf("a tunnel of %q", w.NodeOf(r))
		}
		ws, err := (&websocket.Upgrader{}).Upgrade(a, r, nil)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.t.Cleanup(func() { ws.Close() })
		open <- ws
	}
	return open
}

// dial requests a connection, and returns the first message of it.
func dial(t *testing.T, ws *websocket.Conn, number int64, target string) (kind int64, content string) {
	t.Helper()
	var b []byte
	for _, n := range []int64{1, number, 2, 15000} {
		b = binary.AppendVarint(b, n)
	}
	if err := ws.WriteMessage(websocket.BinaryMessage, append(b, target...)); err != nil {
		t.Fatal(err)
	}
	for {
		_, r, err := ws.NextReader()
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(r)
		var n [3]int64
		for i := range n {
			if n[i], err = binary.ReadVarint(in); err != nil {
				t.Fatal(err)
			}
		}
		if n[2] == 1 {
			if _, err := binary.ReadVarint(in); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if n[1] == number {
			return n[2], string(rest)
		}
	}
}

// kubelet starts a kubelet API that sends a word.
func kubelet(t *testing.T) int32 {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("kubelet"))
			c.Close()
		}
	}()
	return int32(ln.Addr().(*net.TCPAddr).Port)
}

// TestTunnel checks that a server reaches the kubelet API through the tunnel, and nothing else.
func TestTunnel(t *testing.T) {
	w := newWorld(t, year, nil)
	open := sessions(w)
	c := w.config()
	c.Port = kubelet(t)
	w.run(c)
	ws := <-open
	for i, host := range []string{"127.0.0.1", "[::1]", "127.0.0.2", "192.0.2.7"} {
		if kind, text := dial(t, ws, int64(i+1), fmt.Sprintf("tcp/%s:%d", host, c.Port)); kind != 1 || text != "kubelet" {
			t.Errorf("%s: kind %d, %q", host, kind, text)
		}
	}
	port := strconv.Itoa(int(c.Port))
	for i, target := range []string{
		"tcp/127.0.0.1:22", "tcp/192.0.2.8:" + port, "tcp/localhost:" + port, "udp/127.0.0.1:" + port, "unix//run/islet/islet.sock", "tcp/10.42.0.5:80",
		"tcp/0.0.0.0:" + port, "tcp/127.0.0.1:10010", "tcp/:" + port, "/", "tcp/127.0.0.1:" + strconv.Itoa(int(c.Port)+65536),
	} {
		if kind, text := dial(t, ws, int64(i+100), target); kind != 3 {
			t.Errorf("%s: kind %d, %q", target, kind, text)
		}
	}
	ws.Close()
	if ws := <-open; ws == nil { // the tunnel is opened again
		t.Error("no tunnel")
	}
}

// TestServers checks that each server has one tunnel, also one that is listed with the address to which the first tunnel leads.
func TestServers(t *testing.T) {
	w := newWorld(t, year, nil)
	open := sessions(w)
	w.SetServers(strings.TrimPrefix(w.URL, "https://"), "192.0.2.50:6443")
	s, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.dir.Record()
	if err != nil {
		t.Fatal(err)
	}
	ts := newTunnels(s, r)
	defer ts.wg.Wait()
	first := ts.add(t.Context(), strings.TrimPrefix(w.URL, "https://"))
	defer first.cancel()
	<-open
	for first.session.Load() == nil {
		if t.Context().Err() != nil {
			t.Fatal("no session")
		}
	}
	list, err := ts.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ts.set(t.Context(), first, append(list, *first.remote.Load()))
	if _, ok := ts.all["192.0.2.50:6443"]; !ok || len(ts.all) != 2 {
		t.Errorf("%v", ts.all)
	}
	ts.set(t.Context(), first, nil)
	if len(ts.all) != 1 {
		t.Errorf("%v", ts.all)
	}
}

// TestListRetried checks that a node whose first list of the servers fails lists them again soon, and then opens the missing tunnels. A
// board starts without a network.
func TestListRetried(t *testing.T) {
	w := newWorld(t, year, nil)
	const other = "192.0.2.50:6443"
	w.SetServers(strings.TrimPrefix(w.URL, "https://"), other)
	var lists atomic.Int32
	w.Answer = func(a http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1-k3s/apiservers" || lists.Add(1) > 2 {
			return false
		}
		http.Error(a, "starting", http.StatusServiceUnavailable)
		return true
	}
	s, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.dir.Record()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ts, done := newTunnels(s, r), make(chan error, 1)
	go func() { done <- ts.run(ctx) }()
	for found := false; !found; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("no tunnel to the other server after %d lists", lists.Load())
		}
		ts.mu.Lock()
		_, found = ts.all[other]
		ts.mu.Unlock()
	}
	cancel()
	if err := <-done; err != nil || lists.Load() != 3 {
		t.Errorf("%v after %d lists", err, lists.Load())
	}
}

// TestHostileHandshake checks that a server cannot send endless headers, or let a node wait.
func TestHostileHandshake(t *testing.T) {
	w := newWorld(t, year, nil)
	w.Connect = func(a http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(a).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n"))
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("a", 1000)); err != nil {
				return
			}
		}
	}
	w.run(w.config())
	for !strings.Contains(w.logged(slog.LevelWarn), "too long") {
	}
	other := newWorld(t, year, nil)
	other.Connect = func(a http.ResponseWriter, _ *http.Request) {
		http.Error(a, "go away\x1b[2J"+strings.Repeat("x", 10000), http.StatusTeapot)
	}
	other.run(other.config())
	for {
		text := other.logged(slog.LevelWarn)
		if strings.Contains(text, "418") {
			if !strings.Contains(text, "go away") || strings.Contains(text, "\x1b") || len(text) > 1000 {
				t.Error(text)
			}
			return
		}
	}
}

// TestMaxServers checks the limit of tunnels, which includes the server of the join.
func TestMaxServers(t *testing.T) {
	w := newWorld(t, year, nil)
	s, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	record, err := w.dir.Record()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all := newTunnels(s, record)
	first := all.add(ctx, strings.TrimPrefix(w.URL, "https://"))
	var servers []netip.AddrPort
	for i := range byte(k3s.MaxServers) {
		servers = append(servers, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 6443))
	}
	all.set(ctx, first, servers)
	if len(all.all) != k3s.MaxServers || all.all[first.address] != first {
		t.Errorf("%d tunnels", len(all.all))
	}
	all.wg.Wait()
}
