package k3s

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestIsletTunnel checks that the server, or who has taken it over, reaches only the kubelet's port through the tunnel.
func TestIsletTunnel(t *testing.T) {
	t.Parallel()
	c, first := Start(t)
	s := first.Another(t, c)
	n := newNode(t, c)
	n.start(s, s.NodeToken())
	var reached atomic.Int64
	count := func(l net.Listener) {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				conn.Close()
			}
		}()
	}
	for _, address := range []string{"127.0.0.1:2222", n.Addr + ":2222", "[::1]:2222"} {
		err := machine.InNetwork(n.Pid(), func() error {
			l, err := net.Listen("tcp", address)
			if err == nil {
				count(l)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	beyond := c.Listen(t)
	count(beyond)
	for _, target := range []string{
		"tcp 127.0.0.1:2222", "tcp " + n.Addr + ":2222", "tcp localhost:2222", "tcp [::1]:2222", "tcp 0.0.0.0:2222", "tcp 127.0.0.2:2222",
		"tcp " + beyond.Addr().String(), "tcp4 127.0.0.1:2222", "udp 127.0.0.1:2222", "unix /run/islet/islet.sock", "tcp 127.0.0.1:",
		"tcp :2222", "tcp 127.0.0.1:10250@127.0.0.1:2222", "tcp 127.0.0.1:10250/../2222", "tcp " + strings.Repeat("a", 200) + ":10250",
		" ", "tcp 127.0.0.1:10250\n",
	} {
		network, address, _ := strings.Cut(target, " ")
		n.Await("the tunnel", func() bool { return s.Connected(n.Name) })
		conn, err := s.DialThrough(t.Context(), n.Name, network, address)
		if err != nil {
			t.Errorf("%q: %v", target, err) // the refusal comes with the first read
			continue
		}
		if k, _ := conn.Read(make([]byte, 1)); k > 0 {
			t.Errorf("%q: the node has answered", target)
		}
		conn.Close()
	}
	if k := reached.Load(); k != 0 {
		t.Errorf("%d connections have reached a port that is not the kubelet's", k)
	}

	before := n.descriptors()
	var most int
	var all []net.Conn
	n.Await("the tunnel", func() bool { return s.Connected(n.Name) })
	for i := range 3000 {
		conn, err := s.DialThrough(t.Context(), n.Name, "tcp", "127.0.0.1:10250")
		if err != nil {
			break // the node may end a tunnel with too many connections
		}
		all = append(all, conn)
		if i%100 == 0 {
			most = max(most, n.descriptors())
		}
	}
	most = max(most, n.descriptors())
	if most > before+1000 {
		t.Errorf("%d connections through the tunnel: from %d to %d open files", len(all), before, most)
	}
	for _, conn := range all {
		conn.Close()
	}
	t.Logf("%d connections through the tunnel: at most %d open files, %d before", len(all), most, before)
	n.Await("the connections to be closed", func() bool { return n.descriptors() < before+20 })
	n.Await("an answer of the kubelet through the tunnel", func() bool {
		conn, err := s.DialThrough(t.Context(), n.Name, "tcp", "127.0.0.1:10250")
		if err != nil {
			return false
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = tls.Client(conn, &tls.Config{RootCAs: s.pki.server.pool(), ServerName: n.Name}).HandshakeContext(ctx)
		return err == nil
	})
}

// descriptors returns the number of the agent's open files.
func (n *node) descriptors() int {
	n.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.AgentPid()))
	if err != nil {
		n.t.Fatal(err)
	}
	return len(entries)
}

// TestIsletRawTunnel checks that a node survives a server that does not follow remotedialer's protocol, and opens its tunnel again.
func TestIsletRawTunnel(t *testing.T) {
	long(t)
	t.Parallel()
	c, first := Start(t)
	s := first.Another(t, c)
	n := newNode(t, c)
	messages := func(kind int, all ...[]byte) http.Handler {
		return RawTunnel(func(conn *websocket.Conn) {
			for _, b := range all {
				if conn.WriteMessage(kind, b) != nil {
					return
				}
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _, _ = conn.ReadMessage()
		})
	}
	const binary = websocket.BinaryMessage
	kubelet := []byte("tcp/127.0.0.1:10250")
	steps := map[string]http.Handler{
		"an error":            Status(http.StatusServiceUnavailable, 0),
		"a refusal":           Status(http.StatusForbidden, 0),
		"a redirection":       Redirect("https://" + Address + "/v1-k3s/connect"),
		"no WebSocket":        Text([]byte("hello")),
		"an endless answer":   Endless([]byte("hello ")),
		"nothing":             messages(binary),
		"an empty message":    messages(binary, nil),
		"a text":              messages(websocket.TextMessage, Frame(1, 2, FrameConnect, kubelet)),
		"noise":               messages(binary, bytes.Repeat([]byte{0xff}, 64)),
		"a message of 64 MB":  messages(binary, Frame(1, 2, FrameData, make([]byte, 64<<20))),
		"an unknown kind":     messages(binary, Frame(1, 2, 99, []byte("x")), Frame(1, 2, -1, nil)),
		"an unknown number":   messages(binary, Frame(1, 7, FrameData, []byte("x")), Frame(1, 7, FrameError, []byte("EOF"))),
		"a negative number":   messages(binary, Frame(-1, -2, FrameConnect, kubelet)),
		"the same number":     messages(binary, Frame(1, 2, FrameConnect, kubelet), Frame(2, 2, FrameConnect, kubelet)),
		"a long address":      messages(binary, Frame(1, 2, FrameConnect, bytes.Repeat([]byte("a"), 1<<20))),
		"no address":          messages(binary, Frame(1, 2, FrameConnect, nil)),
		"a control character": messages(binary, Frame(1, 2, FrameError, []byte("\x1b[2J\n")), Frame(1, 2, FrameConnect, []byte("tcp/\x1b[2J"))),
		"a truncated list":    messages(binary, Frame(1, 0, FrameSync, bytes.Repeat([]byte{0x80}, 100))),
		"pauses":              messages(binary, Frame(1, 2, FrameConnect, kubelet), Frame(2, 2, FramePause, nil), Frame(3, 9, FrameResume, nil)),
	}
	next := make(chan http.Handler, len(steps))
	for _, h := range steps {
		next <- h
	}
	close(next)
	done := make(chan struct{})
	s.Instead("/v1-k3s/connect", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := <-next; ok {
			h.ServeHTTP(w, r)
			return
		}
		s.Heal()
		close(done)
		refuse(w, r, http.StatusServiceUnavailable, errors.New("now the server is honest"))
	}))
	if out, code := n.join(s.URL(), s.NodeToken()); code != 0 {
		t.Fatalf("islet join: %d\n%s", code, out)
	}
	n.StartAgent()
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
	select {
	case <-done:
	case <-time.After(20 * time.Minute): // the node waits longer after each failure
		t.Fatalf("%d lies are left", len(next))
	}
	peak, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.AgentPid()))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	_, after, _ := strings.Cut(string(peak), "VmHWM:")
	_, err = fmt.Sscan(after, &kib)
	t.Logf("the agent has used up to %d KiB of memory", kib)
	if err != nil || kib > 128<<10 {
		t.Errorf("the agent has used up to %d KiB of memory, %v", kib, err)
	}
	for !s.Connected(n.Name) { // the last pause may be longer than Await waits
		cluster.Pass(time.Second)
	}
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
}
