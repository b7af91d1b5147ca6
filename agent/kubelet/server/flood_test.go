package server_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestHostile checks the server with clients that send too much, too little or no data.
func TestHostile(t *testing.T) {
	t.Parallel() // the test waits for real timeouts
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Server)
	if resp, err := a.Client().Do(withHeader("https://"+a.Addr+"/pods", 48<<10)); err != nil || resp.StatusCode != 200 {
		t.Errorf("a long header: %v %v", resp, err)
	}
	if resp, err := a.Client().Do(withHeader("https://"+a.Addr+"/pods", 2<<20)); err == nil && resp.StatusCode < 400 {
		t.Errorf("an excessive header: %v", resp.Status)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: a.TLS(), DisableKeepAlives: true}} // the client uses HTTP/1.1
	if resp, err := c.Do(withHeader("https://"+a.Addr+"/pods", 2<<20)); err == nil && resp.StatusCode != 431 {
		t.Errorf("an excessive header with HTTP/1.1: %v", resp.Status)
	}
	// The connection of an unauthenticated client is closed.
	conn, err := tls.Dial("tcp", a.Addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if all, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 401") ||
		!strings.HasSuffix(string(all), "Unauthorized") {
		t.Errorf("an unknown client: %q %v", all, err)
	}
	// One client never begins its handshake, and one never completes its request.
	slow := make([]net.Conn, 2)
	for i := range slow {
		if slow[i], err = net.Dial("tcp", a.Addr); err != nil {
			t.Fatal(err)
		}
		defer slow[i].Close()
	}
	loris := tls.Client(slow[1], a.TLS())
	io.WriteString(loris, "GET /pods HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	for _, s := range slow {
		s.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, s); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a slow client was kept")
		}
	}
}

func withHeader(u string, size int) *http.Request {
	req, _ := http.NewRequest("GET", u, nil)
	req.Header.Set("X-Long", strings.Repeat("x", size))
	return req
}

// TestFlood opens thousands of connections. It checks that the server keeps only a small number of them, with few goroutines for each. New
// connections succeed after the old ones are closed.
func TestFlood(t *testing.T) {
	n, _ := servertest.Start(t)
	a := servertest.OpenAPI(t, n.Server)
	before := runtime.NumGoroutine()
	var conns []net.Conn
	for range 2000 {
		c, err := net.Dial("tcp", a.Addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	kept, config := 0, a.TLS()
	config.ServerName = "127.0.0.1"
	for _, c := range slices.Backward(conns[1700:]) { // the first connections were closed before the last one was accepted
		if c := tls.Client(c, config); c.SetDeadline(time.Now().Add(time.Minute)) == nil && c.Handshake() == nil {
			kept++
		}
	}
	if kept == 0 || kept > 128 {
		t.Errorf("%d connections of one address are kept", kept)
	}
	if more := runtime.NumGoroutine() - before; more > 2*128+20 {
		t.Errorf("%d goroutines more", more)
	}
	for _, c := range conns {
		c.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		resp, err := a.Client().Get("https://" + a.Addr + "/healthz")
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestManyAddresses checks that many connections from one address do not block another address.
func TestManyAddresses(t *testing.T) {
	n, _ := servertest.Start(t)
	addr := servertest.Open(t, n.Server.RunHealthz)
	for range 300 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := other.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
}
