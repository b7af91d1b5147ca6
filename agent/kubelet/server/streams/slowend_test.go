package streams_test

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

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestEndInKernel checks that no output is lost if the client continues to send after the command has exited. When the command exits, the
// client has not read all output. If the server read only a part of the client's data and closed the connection, the kernel would discard
// the output.
func TestEndInKernel(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Server)
	config := restConfig(t, a)
	config.Host = "https://" + streamtest.Link(t.Context(), t, a.Addr, streamtest.ForwardWithPause)
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
			err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endlessInput{}, Stdout: &out, Stderr: io.Discard})
			if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != strings.Repeat("0123456789abcdef", 1<<16) {
				t.Errorf("%s: %v, %d bytes", protocol, err, out.Len())
			}
		})
	}
	all.Wait()
}

// TestEndBehindProxy checks a client behind an API server that closes both connections when one of them ends. The client gets every byte
// and the exit code although it reads slowly and continues to send, because the server lets the client close first. The test covers SPDY
// and each WebSocket subprotocol.
func TestEndBehindProxy(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Server)
	config := restConfig(t, a)
	host := streamtest.Link(t.Context(), t, hasty(t, a.Addr), streamtest.ForwardWithPause)
	config.Host = "https://" + host
	const path = "/exec/default/web/nginx?command=give&command=1048576&command=7&output=1&error=1&input=1"
	want := strings.Repeat("0123456789abcdef", 1<<16)
	var all sync.WaitGroup
	all.Go(func() {
		u, err := url.Parse(config.Host + path)
		if err != nil {
			t.Error(err)
			return
		}
		x, err := remotecommand.NewSPDYExecutor(config, "POST", u)
		if err != nil {
			t.Error(err)
			return
		}
		var out bytes.Buffer
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endlessInput{}, Stdout: &out, Stderr: io.Discard})
		if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != want {
			t.Errorf("SPDY: %v, %d bytes", err, out.Len())
		}
	})
	for _, protocol := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"} {
		all.Go(func() {
			d := websocket.Dialer{TLSClientConfig: a.TLS(), Subprotocols: []string{protocol}}
			c, _, err := d.DialContext(t.Context(), "wss://"+host+path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			go func() { // the standard input never ends
				kind, m := websocket.BinaryMessage, append([]byte{0}, make([]byte, 4<<10)...)
				if strings.Contains(protocol, "base64") {
					kind, m = websocket.TextMessage, append([]byte("0"), strings.Repeat("A", 4<<10)...)
				}
				for c.WriteMessage(kind, m) == nil {
				}
			}()
			var out, status strings.Builder
			for _, f := range frames(t, c, strings.Contains(protocol, "base64")) {
				switch f.channel {
				case 1:
					out.WriteString(f.text)
				case 3:
					status.WriteString(f.text)
				}
			}
			if out.String() != want || !strings.Contains(status.String(), "exit code 7") {
				t.Errorf("%s: %d bytes, %q", protocol, out.Len(), status.String())
			}
		})
	}
	all.Wait()
}

// This helper starts a proxy and returns its address. The proxy forwards connections as an API server does: it closes both connections when
// the first direction ends.
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
