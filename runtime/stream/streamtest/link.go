package streamtest

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/pulse/pulsetest"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// A Reader is what becomes of the bytes that a server sends. The connection ends with it.
type Reader func(client, server net.Conn)

// begun is how much of an answer every reader takes.
const begun = 16 << 10

// Slow takes some hundred kilobytes a second.
func Slow(client, server net.Conn) {
	for {
		if _, err := io.CopyN(client, server, begun); err != nil {
			return
		}
		<-time.After(begun * time.Second / (300 << 10))
	}
}

// Stops reads the first bytes, reads nothing for three seconds, and then reads the rest.
func Stops(client, server net.Conn) {
	io.CopyN(client, server, begun)
	<-time.After(3 * time.Second)
	io.Copy(client, server)
}

// Closes takes the first bytes and hangs up.
func Closes(client, server net.Conn) { io.CopyN(client, server, begun) }

// Vanishes takes the first bytes by TCP, and then nothing of it is heard any more.
func Vanishes(client, server net.Conn) {
	io.CopyN(client, server, begun)
	pulsetest.Cut(server.(*net.TCPConn))
	io.Copy(client, server)
}

// CloseOnce returns a Reader that hangs up the first time that there are more than the first
// bytes, and after that takes everything.
func CloseOnce() Reader {
	var closed atomic.Bool
	return func(client, server net.Conn) {
		n, _ := io.CopyN(client, server, begun)
		if n < begun || !closed.CompareAndSwap(false, true) {
			io.Copy(client, server)
		}
	}
}

// Link passes connections on to a TCP port, until ctx ends, and returns its own address. There is
// little room on the way: what the reader does not take waits in the server's kernel.
func Link(ctx context.Context, t testing.TB, to string, read Reader) string {
	t.Helper()
	ln := listen(t, "tcp", "127.0.0.1:0")
	go pass(ctx, ln, read, func() (net.Conn, error) { return pulsetest.Dial(to) })
	return ln.Addr().String()
}

// LinkUnix is Link from one unix socket to another.
func LinkUnix(t testing.TB, at, to string, read Reader) {
	t.Helper()
	go pass(t.Context(), listen(t, "unix", at), read, func() (net.Conn, error) { return net.Dial("unix", to) })
}

func listen(t testing.TB, network, at string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func pass(ctx context.Context, ln net.Listener, read Reader, dial func() (net.Conn, error)) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := dial()
			if err != nil {
				return
			}
			defer server.Close()
			defer context.AfterFunc(ctx, func() { server.Close() })()
			go func() {
				io.Copy(server, client)
				server.(interface{ CloseWrite() error }).CloseWrite()
			}()
			read(client, server)
			server.Close()
			linger.Close(ctx, client) // it may still send
		}()
	}
}
