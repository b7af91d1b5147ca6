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

// A Reader forwards the bytes from a server to a client. It may simulate a slow or a failing
// client. The connection is closed when the Reader returns.
type Reader func(client, server net.Conn)

// beginBytes is the number of bytes that every Reader forwards first.
const beginBytes = 16 << 10

// ForwardSlowly forwards 300 KiB per second.
func ForwardSlowly(client, server net.Conn) {
	for {
		if _, err := io.CopyN(client, server, beginBytes); err != nil {
			return
		}
		<-time.After(beginBytes * time.Second / (300 << 10))
	}
}

// ForwardWithPause forwards beginBytes, pauses for three seconds, and then forwards the rest.
func ForwardWithPause(client, server net.Conn) {
	io.CopyN(client, server, beginBytes)
	<-time.After(3 * time.Second)
	io.Copy(client, server)
}

// ForwardThenClose forwards beginBytes and closes the connection.
func ForwardThenClose(client, server net.Conn) { io.CopyN(client, server, beginBytes) }

// ForwardThenVanish forwards beginBytes. Then it drops every packet of the TCP connection to the server without closing
// the connection.
func ForwardThenVanish(client, server net.Conn) {
	io.CopyN(client, server, beginBytes)
	pulsetest.CutLink(server.(*net.TCPConn))
	io.Copy(client, server)
}

// CloseOnce returns a Reader that closes one connection after beginBytes: the first connection on which the server sends
// at least beginBytes. It forwards all bytes of the other connections.
func CloseOnce() Reader {
	var closed atomic.Bool
	return func(client, server net.Conn) {
		n, _ := io.CopyN(client, server, beginBytes)
		if n < beginBytes || !closed.CompareAndSwap(false, true) {
			io.Copy(client, server)
		}
	}
}

// Link listens on a TCP port until ctx ends, and forwards its connections to another address. It
// returns the address of the port. The receive buffers are small, so unread data stays in the send
// buffer of the server.
func Link(ctx context.Context, t testing.TB, to string, read Reader) string {
	t.Helper()
	ln := listen(t, "tcp", "127.0.0.1:0")
	go forwardConns(ctx, ln, read, func() (net.Conn, error) { return pulsetest.Dial(to) })
	return ln.Addr().String()
}

// LinkUnix is like Link for unix sockets. It listens on the first socket and forwards to the second one.
func LinkUnix(t testing.TB, at, to string, read Reader) {
	t.Helper()
	go forwardConns(t.Context(), listen(t, "unix", at), read, func() (net.Conn, error) { return net.Dial("unix", to) })
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

func forwardConns(ctx context.Context, ln net.Listener, read Reader, dial func() (net.Conn, error)) {
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
			linger.Close(ctx, client) // deliver all data, even if the client is still sending
		}()
	}
}
