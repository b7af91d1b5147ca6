package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// narrow passes connections on to a port. What comes back stops for a while after the first bytes,
// with little room on the way: the rest waits in the server's kernel.
func narrow(t *testing.T, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
		return err
	}}
	serve := func(client net.Conn) {
		defer client.Close()
		server, err := d.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		go io.Copy(server, client)
		io.CopyN(client, server, 16<<10)
		<-time.After(3 * time.Second)
		io.Copy(client, server)
		linger.Close(context.Background(), client) // it may still send
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return ln.Addr().String()
}

// TestEndInKernel: what the server has written, but the client has not taken when the command ends,
// is not lost because the client goes on sending: the library that reads would see parts of
// that, and end the session.
func TestEndInKernel(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := openAPI(t, n.Server)
	config := a.rest(t)
	config.Host = "https://" + narrow(t, a.addr)
	const path = "/exec/default/web/nginx?command=give&command=1048576&command=7&output=1&error=1&input=1"
	var all sync.WaitGroup
	for _, protocol := range []string{"websocket", "spdy"} {
		u, err := url.Parse(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		var x remotecommand.Executor
		if protocol == "websocket" {
			x, err = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
		} else {
			x, err = remotecommand.NewSPDYExecutor(config, "POST", u)
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var out bytes.Buffer
			err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endless{}, Stdout: &out, Stderr: io.Discard})
			if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != strings.Repeat("0123456789abcdef", 1<<16) {
				t.Errorf("%s: %v, %d bytes", protocol, err, out.Len())
			}
		})
	}
	all.Wait()
}
