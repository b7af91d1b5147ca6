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

// A Reader forwards the bytes from a server to a client, or simulates a client that fails. The
// connection ends when the Reader returns.
type Reader func(client, server net.Conn)

// begun is the number of bytes that every Reader forwards at first.
const begun = 16 << 10

// Slow forwards 300 KiB per second.
func Slow(client, server net.Conn) {
	for {
		if _, err := io.CopyN(client, server, begun); err != nil {
			return
		}
		<-time.After(begun * time.Second / (300 << 10))
	}
}

// Stops forwards the first bytes, pauses for three seconds, and then forwards the rest.
func Stops(client, server net.Conn) {
	io.CopyN(client, server, begun)
	<-time.After(3 * time.Second)
	io.Copy(client, server)
}

// Closes forwards the first bytes and closes the connection.
func Closes(client, server net.Conn) { io.CopyN(client, server, begun) }

// Vanishes forwards the first bytes over TCP, and then drops every packet without closing the
// connection.
func Vanishes(client, server net.Conn) {
	io.CopyN(client, server, begun)
	pulsetest.Cut(server.(*net.TCPConn))
	io.Copy(client, server)
}

// CloseOnce returns a Reader that closes one connection after the first bytes: the first one with
// more data than that. It forwards everything on later ones.
func CloseOnce() Reader {
	var closed atomic.Bool
	return func(client, server net.Conn) {
		n, _ := io.CopyN(client, server, begun)
		if n < begun || !closed.CompareAndSwap(false, true) {
			io.Copy(client, server)
		}
	}
}

// Link forwards connections to a TCP port until ctx ends. It returns the address on which it
// listens. Its buffers are small, so data that the Reader does not read stays in the server's
// kernel.
func Link(ctx context.Context, t testing.TB, to string, read Reader) string {
	t.Helper()
	ln := listen(t, "tcp", "127.0.0.1:0")
	go pass(ctx, ln, read, func() (net.Conn, error) { return pulsetest.Dial(to) })
	return ln.Addr().String()
}

// LinkUnix is like Link, but forwards from one unix socket to another.
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
			linger.Close(ctx, client) // the client may still be sending
		}()
	}
}
