package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// A wires is a listener for connections in memory. In a synctest bubble, time advances while these connections wait.
type wires struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (w *wires) dial() net.Conn {
	here, there := net.Pipe()
	w.conns <- there
	return here
}

func (w *wires) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wires) Close() error   { w.once.Do(func() { close(w.done) }); return nil }
func (w *wires) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// TestSlowClients checks that the server stops although many streams hang in different ways. No goroutine remains.
func TestSlowClients(t *testing.T) {
	upgrade := "Connection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n" +
		"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
	for name, request := range map[string]string{
		"log":             "GET /containerLogs/default/web/nginx?follow=true HTTP/1.1\r\nHost: x\r\n\r\n",
		"watch":           "GET " + api.PathPods + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"half an image":   "POST " + api.PathImageImport + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
		"half a manifest": "POST " + api.PathPods + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
		"half a header":   "GET /pods HTTP/1.1\r\nHost: x\r\nX: ",
		"silent process":  "GET /exec/default/web/nginx?command=hang&output=1 HTTP/1.1\r\nHost: x\r\n" + fmt.Sprintf(upgrade, "websocket") + "\r\n",
		"endless process": "GET /exec/default/web/nginx?command=flood&output=1 HTTP/1.1\r\nHost: x\r\n" + fmt.Sprintf(upgrade, "websocket") + "\r\n",
		"unopened streams": "POST /exec/default/web/nginx?command=hang&output=1 HTTP/1.1\r\nHost: x\r\n" +
			fmt.Sprintf(upgrade, "SPDY/3.1") + "\r\n",
		"unopened port": "POST /portForward/default/web HTTP/1.1\r\nHost: x\r\n" +
			strings.Replace(fmt.Sprintf(upgrade, "SPDY/3.1"), "v4.channel", "portforward", 1) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := servertest.Start(t)
			synctest.Test(t, func(t *testing.T) {
				n.Pod("web", time.Now(), "nginx")
				n.Log(t, "web-nginx", strings.Repeat("x", 1<<20))
				slowClients(t, n, request)
			})
		})
	}
}

func slowClients(t *testing.T, n *servertest.Node, request string) {
	ln := &wires{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Server.Run(ctx, ln) }()
	for i := range 6 {
		c := ln.dial()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // some requests have no response
		c.Read(make([]byte, 512))
		if i%2 == 0 { // half of the clients close the connection
			c.Close()
		}
	}
	began := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the server needed %s to stop", took)
	}
	time.Sleep(time.Minute) // all timeouts have passed
}
