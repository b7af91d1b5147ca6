package server_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestEndInKernel: what the server has written, but the client has not taken when the command ends,
// is not lost because the client goes on sending: the library that reads would see parts of
// that, and end the session.
func TestEndInKernel(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := openAPI(t, n.Server)
	config := a.rest(t)
	config.Host = "https://" + streamtest.Link(t.Context(), t, a.addr, streamtest.Stops)
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

// TestEndBehindProxy: an API server hangs up on both sides when one of them has ended. A client that reads
// slowly behind it, and goes on sending, gets every byte and the code all the same, as
// the server lets it hang up first.
func TestEndBehindProxy(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := openAPI(t, n.Server)
	config := a.rest(t)
	config.Host = "https://" + streamtest.Link(t.Context(), t, hasty(t, a.addr), streamtest.Stops)
	u, err := url.Parse(config.Host + "/exec/default/web/nginx?command=give&command=1048576&command=7&output=1&error=1&input=1")
	if err != nil {
		t.Fatal(err)
	}
	x, err := remotecommand.NewSPDYExecutor(config, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endless{}, Stdout: &out, Stderr: io.Discard})
	if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != strings.Repeat("0123456789abcdef", 1<<16) {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

// hasty passes connections on as an API server does: it reads what there is, and closes both ends with
// the first direction that ends.
func hasty(t *testing.T, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			client.(*net.TCPConn).SetWriteBuffer(4 << 20)
			end := func() { client.Close(); server.Close() }
			go func() { io.Copy(server, client); end() }()
			go func() { io.Copy(client, server); end() }()
		}
	}()
	return ln.Addr().String()
}
