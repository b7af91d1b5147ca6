package streamtest

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/islet-edge/islet/pulse/pulsetest"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// A Reader is what becomes of the bytes that a server sends.
type Reader func(client, server *net.TCPConn)

// begun is how much of an answer every reader takes.
const begun = 16 << 10

// Slow takes some hundred kilobytes a second.
func Slow(client, server *net.TCPConn) {
	for {
		if _, err := io.CopyN(client, server, begun); err != nil {
			return
		}
		<-time.After(begun * time.Second / (300 << 10))
	}
}

// Stops takes the first bytes, and after a while the rest.
func Stops(client, server *net.TCPConn) {
	io.CopyN(client, server, begun)
	<-time.After(3 * time.Second)
	io.Copy(client, server)
}

// Closes takes the first bytes and hangs up.
func Closes(client, server *net.TCPConn) { io.CopyN(client, server, begun) }

// Vanishes takes the first bytes, and then nothing of it is heard any more.
func Vanishes(client, server *net.TCPConn) {
	io.CopyN(client, server, begun)
	pulsetest.Cut(server)
	io.Copy(client, server)
}

// Link passes connections on to a port, until ctx ends. There is little room on the way: what the reader does not
// take waits in the server's kernel. It returns its address.
func Link(ctx context.Context, t testing.TB, to string, read Reader) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	serve := func(client *net.TCPConn) {
		defer client.Close()
		server, err := pulsetest.Dial(to)
		if err != nil {
			return
		}
		defer server.Close()
		defer context.AfterFunc(ctx, func() { server.Close() })()
		go io.Copy(server, client)
		read(client, server)
		server.Close()
		linger.Close(ctx, client) // it may still send
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	return ln.Addr().String()
}
