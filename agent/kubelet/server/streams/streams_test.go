package streams_test

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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// executor returns a Kubernetes client for either protocol. The client accepts no dialer, so it connects to a TCP bridge.
func executor(t *testing.T, n *servertest.Node, protocol, path string) remotecommand.Executor {
	t.Helper()
	return executorAt(t, bridge(t, n), protocol, path)
}

func executorAt(t *testing.T, addr, protocol, path string) remotecommand.Executor {
	t.Helper()
	host := "http://" + addr
	u, err := url.Parse(host + path)
	if err != nil {
		t.Fatal(err)
	}
	var x remotecommand.Executor
	config := (&rest.Config{Host: host})
	if protocol == "websocket" {
		x, err = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
	} else {
		x, err = remotecommand.NewSPDYExecutor(config, "POST", u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// bridge starts a proxy from a TCP port to the unix socket, and returns its address.
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
				linger.Close(context.Background(), c) // the client may still be sending data
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

// A sizeQueue sends terminal sizes to the client.
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

// TestExecClientGone checks that a process in the container ends when its client disconnects.
func TestExecClientGone(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocol := range []string{"spdy", "websocket"} {
		for command, says := range map[string]int{"begin": 1, "flood": 1 << 20} {
			ctx, cancel := context.WithCancel(t.Context())
			x := executor(t, n, protocol, "/exec/default/web/nginx?command="+command+"&output=1&error=1")
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: w, Stderr: io.Discard}) }()
			io.ReadFull(r, make([]byte, says)) // the process runs
			cancel()
			r.Close()
			<-done
			n.Runtime.Streams.Wait()
		}
	}
}

// TestInputLost checks that a command gets the end of its input only if its client has ended the input, and not if the client ends the
// session or loses its connection before that.
func TestInputLost(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocol := range []string{"spdy", "websocket"} {
		for how, saved := range map[string]int32{"ended": 1, "canceled": 0, "cut": 0} {
			n.Runtime.Saved.Store(0)
			addr, cut, _ := cutBridge(t, n)
			x := executorAt(t, addr, protocol, "/exec/default/web/nginx?command=save&input=1&output=1&error=1")
			ctx, cancel := context.WithCancel(t.Context())
			in, typed := io.Pipe()
			out, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: w, Stderr: io.Discard})
			}()
			io.WriteString(typed, "some input")
			io.ReadFull(out, make([]byte, len("some input"))) // the process has read it
			switch how {
			case "ended":
				typed.Close()
			case "canceled":
				cancel()
			case "cut":
				cut()
			}
			err := <-done
			if (err == nil) != (how == "ended") && how != "cut" { // client-go reports a cut connection as a success
				t.Errorf("%s, %s: %v", protocol, how, err)
			}
			n.Runtime.Streams.Wait()
			if got := n.Runtime.Saved.Load(); got != saved {
				t.Errorf("%s, %s: the command got the end of its input %d times, want %d", protocol, how, got, saved)
			}
			cancel()
			typed.Close()
			out.Close()
		}
	}
	testResetInput(t, n)
}

// testResetInput checks that a client that resets its input has not ended the input, also if its session continues.
func testResetInput(t *testing.T, n *servertest.Node) {
	t.Helper()
	n.Runtime.Saved.Store(0)
	u := &url.URL{Scheme: "http", Host: bridge(t, n), Path: "/exec/default/web/nginx", RawQuery: "command=save&input=1&output=1"}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u).Dial("v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout"} {
		if streams[name], err = conn.CreateStream(http.Header{"StreamType": {name}}); err != nil {
			t.Fatal(err)
		}
	}
	io.WriteString(streams["stdin"], "some input")
	io.ReadFull(streams["stdout"], make([]byte, len("some input"))) // the process has read it
	streams["stdin"].Reset()
	if status, err := io.ReadAll(streams["error"]); err != nil || !strings.Contains(string(status), "Failure") {
		t.Errorf("the status after a reset of the input is %s, %v", status, err)
	}
	conn.Close()
	n.Runtime.Streams.Wait()
	if got := n.Runtime.Saved.Load(); got != 0 {
		t.Errorf("the command got a reset as the end of its input")
	}
}

// TestUnreadInput checks that a command ends when its client disconnects, although the command has not read its input.
func TestUnreadInput(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	addr, cut, full := cutBridge(t, n)
	x := executorAt(t, addr, "spdy", "/exec/default/web/nginx?command=begin&input=1&output=1")
	done := make(chan error, 1)
	out, w := io.Pipe()
	go func() {
		done <- x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endlessInput{}, Stdout: w})
	}()
	io.ReadFull(out, make([]byte, len("begun\n"))) // the process runs
	<-full
	cut()
	<-done
	n.Runtime.Streams.Wait()
}

// cutBridge starts a proxy from a TCP port to the unix socket for one connection. The function cut closes this connection. The channel full
// is closed when the client has sent more data than the server buffers while the process reads nothing: the library keeps at most 50 frames
// of 32 KiB, and a few in its goroutines.
func cutBridge(t *testing.T, n *servertest.Node) (addr string, cut func(), full <-chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns, filled := make(chan net.Conn, 2), make(chan struct{})
	go func() {
		defer ln.Close()
		c, err := ln.Accept()
		if err != nil {
			return
		}
		to, err := n.Dial(context.Background(), "", "")
		if err != nil {
			c.Close()
			return
		}
		conns <- to
		conns <- c
		go func() {
			io.CopyN(to, c, 53*(32<<10+8))
			close(filled)
			io.Copy(to, c)
			to.Close()
		}()
		io.Copy(c, to)
		c.Close()
	}()
	return ln.Addr().String(), func() { (<-conns).Close(); (<-conns).Close() }, filled
}

// A frame is a WebSocket message. It consists of a channel and data.
type frame struct {
	channel byte
	text    string
}

// This helper reads a session to its end and returns the messages.
func frames(t *testing.T, c *websocket.Conn, base64d bool) (all []frame) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		kind, m, err := c.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("the session ended with %v", err)
			}
			return all
		}
		if want := map[bool]int{true: websocket.TextMessage, false: websocket.BinaryMessage}[base64d]; kind != want || len(m) == 0 {
			t.Fatalf("a message %q of kind %d", m, kind)
		}
		f := frame{m[0], string(m[1:])}
		if base64d {
			plain, err := base64.StdEncoding.DecodeString(f.text)
			if err != nil {
				t.Fatal(err)
			}
			f = frame{f.channel - '0', string(plain)}
		}
		all = append(all, f)
	}
}

// dialOld connects as an old client does. It offers the given subprotocols or none, and sends the origin of another server.
func dialOld(t *testing.T, n *servertest.Node, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{NetDialContext: n.Dial, Subprotocols: protocols}
	c, resp, err := d.Dial("ws://islet"+path, http.Header{"Origin": {"http://elsewhere.example"}})
	if err != nil {
		t.Fatalf("%s with %q: %v (%+v)", path, protocols, err, resp)
	}
	t.Cleanup(func() { c.Close() })
	if got, want := c.Subprotocol(), strings.Join(protocols[:min(1, len(protocols))], ""); got != want {
		t.Errorf("offered %q, agreed on %q", protocols, got)
	}
	return c
}

// webSockets returns the number of WebSocket sessions that the metrics have counted.
func webSockets(t *testing.T, n *servertest.Node, subresource string) (count float64) {
	t.Helper()
	for _, m := range servertest.Scrape(t, n.Server, "/metrics")["kubelet_websocket_streaming_requests_total"].GetMetric() {
		if m.Label[0].GetValue() == subresource {
			count = m.GetCounter().GetValue()
		}
	}
	return count
}

// TestWebSocketProtocols checks that clients of each subprotocol get the command's output. They get the exit code in the format of their
// protocol version.
func TestWebSocketProtocols(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocols := range [][]string{nil, {"channel.k8s.io"}, {"base64.channel.k8s.io"}, {"v4.channel.k8s.io"}, {"v4.base64.channel.k8s.io"},
		{"v5.channel.k8s.io"}, {"v4.channel.k8s.io", "channel.k8s.io"}} {
		name := strings.Join(protocols, "")
		base64d, v4 := strings.Contains(name, "base64"), strings.HasPrefix(name, "v")
		success, failure := []frame(nil), []frame{{3, "exit code 3"}}
		if v4 {
			success = []frame{{3, `{"metadata":{},"status":"Success"}`}}
		}
		c := dialOld(t, n, "/exec/default/web/nginx?command=echo&command=hi&output=1", protocols...)
		if got, want := frames(t, c, base64d), append([]frame{{1, ""}, {1, "hi\n"}}, success...); !slices.Equal(got, want) {
			t.Errorf("%q: echo: %q, want %q", protocols, got, want)
		}
		c = dialOld(t, n, "/exec/default/web/nginx?command=exit&command=3&error=1", protocols...)
		got := frames(t, c, base64d)
		if v4 && len(got) == 2 && strings.Contains(got[1].text, `"reason":"ExitCode","message":"3"`) {
			got[1].text = "exit code 3"
		}
		if want := append([]frame{{2, ""}}, failure...); len(got) != 2 || got[0] != want[0] || got[1].channel != 3 || !strings.Contains(got[1].text, failure[0].text) {
			t.Errorf("%q: exit 3: %q, want %q", protocols, got, want)
		}
	}
	for subresource, want := range map[string]float64{"exec": 2, "attach": 0, "portforward": 0} { // only v5 is counted, as in a kubelet
		if got := webSockets(t, n, subresource); got != want {
			t.Errorf("%v sessions of %s over a WebSocket were counted", got, subresource)
		}
	}
	d := websocket.Dialer{NetDialContext: n.Dial, Subprotocols: []string{"v9.channel.k8s.io"}}
	if _, resp, err := d.Dial("ws://islet/exec/default/web/nginx?command=echo&output=1", nil); err == nil || resp == nil ||
		resp.StatusCode != http.StatusForbidden {
		t.Errorf("an unknown subprotocol: %v, %+v", err, resp)
	}
	n.Runtime.Streams.Wait()
}

// TestTextWebSocket checks a terminal session over the base64 subprotocols. Browsers use these subprotocols.
func TestTextWebSocket(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for protocol, end := range map[string]string{"base64.channel.k8s.io": "exit code 7", "v4.base64.channel.k8s.io": `"reason":"ExitCode"`} {
		c := dialOld(t, n, "/exec/default/web/nginx?command=sh&input=1&output=1&tty=1", protocol)
		c.WriteMessage(websocket.TextMessage, []byte("4"+text(`{"Width":80,"Height":24}`)))
		if got := <-n.Runtime.Size; got != (cri.TerminalSize{Width: 80, Height: 24}) {
			t.Errorf("%s: size %v", protocol, got)
		}
		c.WriteMessage(websocket.TextMessage, []byte("0"+text("hello\nexit\n")))
		got := frames(t, c, true)
		if len(got) != 3 || got[0] != (frame{1, ""}) || got[1] != (frame{1, "you said hello\r\n"}) || got[2].channel != 3 || !strings.Contains(got[2].text, end) {
			t.Errorf("%s: got %q", protocol, got)
		}
	}
}

// TestWebSocketPortForward checks port forwarding over a WebSocket. Each port has two channels, and the first message of a channel contains
// the port's number.
func TestWebSocketPortForward(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	for _, protocols := range [][]string{nil, {"v4.channel.k8s.io"}, {"v4.base64.channel.k8s.io"}} {
		base64d := strings.Contains(strings.Join(protocols, ""), "base64")
		c := dialOld(t, n, "/portForward/default/web?port=80", protocols...)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		got := map[byte]string{}
		if base64d {
			c.WriteMessage(websocket.TextMessage, []byte("0"+text("hello")))
		} else {
			c.WriteMessage(websocket.BinaryMessage, []byte("\x00hello"))
		}
		for got[0] != "P\x00hello" {
			_, m, err := c.ReadMessage()
			if err != nil || len(m) == 0 {
				t.Fatalf("%q: %q, then %v", protocols, got, err)
			}
			channel, data := m[0], m[1:]
			if base64d {
				channel -= '0'
				data, _ = base64.StdEncoding.DecodeString(string(data))
			}
			got[channel] += string(data)
		}
		if got[1] != "P\x00" {
			t.Errorf("%q: the error channel sent %q", protocols, got[1])
		}
		c.Close()
	}
}

func text(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestPortForward(t *testing.T) {
	for name, dial := range map[string]func(*url.URL) (httpstream.Dialer, error){
		"spdy": func(u *url.URL) (httpstream.Dialer, error) {
			rt, up, err := spdy.RoundTripperFor(&rest.Config{Host: "http://" + u.Host})
			return spdy.NewDialer(up, &http.Client{Transport: rt}, "POST", u), err
		},
		"tunnel": func(u *url.URL) (httpstream.Dialer, error) {
			return portforward.NewSPDYOverWebsocketDialer(u, &rest.Config{Host: "http://" + u.Host})
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := testPortForward(t, dial)
			if got, want := webSockets(t, n, "portforward"), map[string]float64{"tunnel": 1}[name]; got != want {
				t.Errorf("%v sessions over a WebSocket were counted, not %v", got, want)
			}
		})
	}
}

func testPortForward(t *testing.T, dial func(*url.URL) (httpstream.Dialer, error)) *servertest.Node {
	t.Helper()
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	u := &url.URL{Scheme: "http", Host: bridge(t, n), Path: "/portForward/default/web"}
	dialer, err := dial(u)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
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
	return n
}
