package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/server/servertest"
	"github.com/islet-edge/islet/runtime/cri"
)

// executor is Kubernetes' own client, for either protocol. It takes no dialer of
// ours, so it goes by way of TCP.
func executor(t *testing.T, n *servertest.Node, protocol, path string) remotecommand.Executor {
	t.Helper()
	host := "http://" + bridge(t, n)
	u, err := url.Parse(host + path)
	if err != nil {
		t.Fatal(err)
	}
	var x remotecommand.Executor
	if config := (&rest.Config{Host: host}); protocol == "websocket" {
		x, err = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
	} else {
		x, err = remotecommand.NewSPDYExecutor(config, "POST", u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// bridge makes the unix socket reachable by TCP.
func bridge(t *testing.T, n *servertest.Node) string {
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
			go func() {
				defer c.Close()
				to, err := n.Dial(context.Background(), "", "")
				if err != nil {
					return
				}
				defer to.Close()
				go io.Copy(to, c)
				io.Copy(c, to)
			}()
		}
	}()
	return ln.Addr().String()
}

func TestExec(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	big := strings.Repeat("0123456789abcdef", 32<<10)
	for _, protocol := range []string{"spdy", "websocket"} {
		for name, c := range map[string]struct {
			path, in       string
			out, err, fail string
			code           int
		}{
			"echo":   {path: "/exec/default/web/nginx?command=echo&command=hi&output=1&error=1", out: "hi\n", err: "from web-nginx\n"},
			"uid":    {path: "/exec/default/web/uid-web/nginx?command=echo&command=hi&output=1&error=1", out: "hi\n", err: "from web-nginx\n"},
			"cat":    {path: "/exec/default/web/nginx?command=cat&input=1&output=1&error=1", in: big, out: big},
			"attach": {path: "/attach/default/web/nginx?input=1&output=1&error=1", in: "x", out: "x"},
			"code":   {path: "/exec/default/web/nginx?command=exit&command=3&output=1&error=1", code: 3},
			"fail":   {path: "/exec/default/web/nginx?command=nope&output=1&error=1", fail: "executable file not found: nope"},
			"gone":   {path: "/exec/default/web/none?command=nope&output=1&error=1", fail: `container not found ("none")`},
		} {
			var out, errw bytes.Buffer
			o := remotecommand.StreamOptions{Stdout: &out, Stderr: &errw}
			if c.in != "" {
				o.Stdin = strings.NewReader(c.in)
			}
			err := executor(t, n, protocol, c.path).StreamWithContext(t.Context(), o)
			code := 0
			if exit := (exec.CodeExitError{}); errors.As(err, &exit) {
				code, err = exit.Code, nil
			}
			if out.String() != c.out || errw.String() != c.err || code != c.code ||
				(err == nil) != (c.fail == "") || !strings.Contains(fmt.Sprint(err), c.fail) {
				t.Errorf("%s by %s: %d bytes out, %q, code %d, %v", name, protocol, out.Len(), errw.String(), code, err)
			}
		}
	}
	n.Runtime.Streams.Wait()
}

// sizeQueue is a terminal that is resized.
type sizeQueue chan remotecommand.TerminalSize

func (q sizeQueue) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &size
}

func TestExecTerminal(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocol := range []string{"spdy", "websocket"} {
		q := make(sizeQueue, 1)
		in, typed := io.Pipe()
		var out bytes.Buffer
		done := make(chan error, 1)
		x := executor(t, n, protocol, "/exec/default/web/nginx?command=sh&input=1&output=1&tty=1")
		go func() {
			done <- x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: q})
		}()
		for w := range uint16(3) {
			q <- remotecommand.TerminalSize{Width: w, Height: 1}
			if got := <-n.Runtime.Size; got != (cri.TerminalSize{Width: w, Height: 1}) {
				t.Errorf("%s: size %v", protocol, got)
			}
		}
		io.WriteString(typed, "hello\nexit\n")
		err := <-done
		close(q)
		typed.Close()
		if exit := (exec.CodeExitError{}); !errors.As(err, &exit) || exit.Code != 7 || out.String() != "you said hello\r\n" {
			t.Errorf("%s: %q, %v", protocol, out.String(), err)
		}
	}
}

// TestExecClientGone: the process is told when its client goes away.
func TestExecClientGone(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocol := range []string{"spdy", "websocket"} {
		for _, command := range []string{"hang", "flood"} {
			ctx, cancel := context.WithCancel(t.Context())
			x := executor(t, n, protocol, "/exec/default/web/nginx?command="+command+"&output=1&error=1")
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: w, Stderr: io.Discard}) }()
			if command == "flood" {
				io.ReadFull(r, make([]byte, 1<<20))
			}
			cancel()
			r.Close()
			<-done
			n.Runtime.Streams.Wait()
		}
	}
}

// TestOldWebSocket: a client that offers v4 only.
func TestOldWebSocket(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	d := websocket.Dialer{NetDialContext: n.Dial, Subprotocols: []string{"v4.channel.k8s.io"}}
	c, _, err := d.Dial("ws://islet/exec/default/web/nginx?command=exit&command=3&output=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, m, err := c.ReadMessage()
	if err != nil || m[0] != 3 || !strings.Contains(string(m), `"reason":"ExitCode","message":"3"`) {
		t.Errorf("got %q, %v", m, err)
	}
}

// TestTextWebSocket: a terminal in a browser.
func TestTextWebSocket(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for protocol, end := range map[string]string{"base64.channel.k8s.io": "exit code 7", "v4.base64.channel.k8s.io": `"reason":"ExitCode"`} {
		d := websocket.Dialer{NetDialContext: n.Dial, Subprotocols: []string{protocol}}
		c, _, err := d.Dial("ws://islet/exec/default/web/nginx?command=sh&input=1&output=1&tty=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.WriteMessage(websocket.TextMessage, []byte("4"+text(`{"Width":80,"Height":24}`)))
		if got := <-n.Runtime.Size; got != (cri.TerminalSize{Width: 80, Height: 24}) {
			t.Errorf("%s: size %v", protocol, got)
		}
		c.WriteMessage(websocket.TextMessage, []byte("0"+text("hello\nexit\n")))
		if kind, m, err := c.ReadMessage(); err != nil || kind != websocket.TextMessage || string(m) != "1"+text("you said hello\r\n") {
			t.Errorf("%s: got %d %q, %v", protocol, kind, m, err)
		}
		_, m, err := c.ReadMessage()
		status, _ := base64.StdEncoding.DecodeString(string(m[min(1, len(m)):]))
		if err != nil || string(m[:1]) != "3" || !strings.Contains(string(status), end) {
			t.Errorf("%s: ended with %q, %v", protocol, status, err)
		}
	}
}

func text(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestPortForward(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	u := &url.URL{Scheme: "http", Host: bridge(t, n), Path: "/portForward/default/web"}
	rt, up, err := spdy.RoundTripperFor(&rest.Config{Host: "http://" + u.Host})
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	dialer := spdy.NewDialer(up, &http.Client{Transport: rt}, "POST", u)
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("hello %d", i)
		io.WriteString(c, want)
		c.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if got, err := io.ReadAll(c); string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
		c.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
