package remotedialer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
)

// A server is the other side of a session.
type server struct {
	t       *testing.T
	ws      *websocket.Conn
	writing sync.Mutex
	// ended receives the result of the session.
	ended chan error
}

// A received message.
type received struct {
	header
	content []byte
}

// start starts a session whose connections are dialed by dial.
func start(t *testing.T, dial Dial, budget *Budget) *server {
	t.Helper()
	s := &server{t: t, ended: make(chan error, 1)}
	opened := make(chan *websocket.Conn, 1)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- ws
	}))
	t.Cleanup(hs.Close)
	node, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(hs.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.ws = <-opened
	ctx, cancel := context.WithCancel(t.Context())
	session := New(node, dial, budget)
	go func() { s.ended <- session.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.ws.Close()
	})
	return s
}

// send sends a message as a server of k3s does.
func (s *server) send(h header, content []byte) {
	s.t.Helper()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.ws.WriteMessage(websocket.BinaryMessage, append(appendHeader(nil, 77, h), content...)); err != nil {
		s.t.Error(err)
	}
}

func (s *server) connect(number int64, address string) {
	s.t.Helper()
	s.send(header{number, kindConnect}, []byte("tcp/"+address))
}

// receive returns the next message that is not a list of connections.
func (s *server) receive() received {
	s.t.Helper()
	for {
		_, r, err := s.ws.NextReader()
		if err != nil {
			s.t.Fatal(err)
		}
		b := bufio.NewReader(r)
		h, err := readHeader(b)
		if err != nil {
			s.t.Fatal(err)
		}
		content, err := io.ReadAll(b)
		if err != nil {
			s.t.Fatal(err)
		}
		if h.kind != kindSyncConnections {
			return received{h, content}
		}
	}
}

// nodes returns a Dial whose connections are served by serve.
func nodes(t *testing.T, serve func(net.Conn)) Dial {
	return func(context.Context, string, string) (net.Conn, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		other, err := ln.Accept()
		if err != nil {
			return nil, err
		}
		_, _ = c.(*net.TCPConn).SetWriteBuffer(16<<10), other.(*net.TCPConn).SetReadBuffer(16<<10) // so that little waits in the kernel
		t.Cleanup(func() { other.Close() })
		go serve(other)
		return c, nil
	}
}

func echo(c net.Conn) {
	io.Copy(c, c)
	c.Close()
}

// TestHeader checks the form of a message against its bytes.
func TestHeader(t *testing.T) {
	want := []byte{2, 3, 2, 0xb0, 0xea, 1} // message 1, connection -2, data, 15 s in milliseconds
	if got := appendHeader(nil, 1, header{-2, kindData}); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	if got := appendHeader(nil, 1, header{5, kindError}); !bytes.Equal(got, []byte{2, 10, 6}) {
		t.Errorf("% x", got)
	}
}

// TestEcho checks several connections at a time, in both directions, with an end from each side.
func TestEcho(t *testing.T) {
	var budget Budget
	s := start(t, nodes(t, echo), &budget)
	s.connect(1, "127.0.0.1:10250")
	s.connect(2, "127.0.0.1:10250")
	big := make([]byte, 1<<20)
	rand.Read(big)
	go func() {
		for at := 0; at < len(big); at += 32 << 10 {
			s.send(header{1, kindData}, big[at:at+32<<10])
		}
		s.send(header{2, kindData}, []byte("hello"))
	}()
	var first, second []byte
	for len(first) < len(big) || len(second) < 5 {
		m := s.receive()
		switch {
		case m.kind == kindPause || m.kind == kindResume:
		case m.kind == kindData && m.conn == 1:
			first = append(first, m.content...)
		case m.kind == kindData && m.conn == 2:
			second = append(second, m.content...)
		default:
			t.Fatalf("%+v: %s", m.header, m.content)
		}
	}
	if !bytes.Equal(first, big) || string(second) != "hello" {
		t.Error("the bytes differ")
	}
	s.send(header{1, kindError}, []byte("EOF"))
	s.send(header{2, kindError}, []byte("EOF"))
	s.connect(3, "127.0.0.1:10250")
	s.send(header{3, kindData}, []byte("x"))
	m := s.receive()
	for m.conn == 1 && (m.kind == kindPause || m.kind == kindResume) { // it was on the way already
		m = s.receive()
	}
	if m.conn != 3 || string(m.content) != "x" {
		t.Errorf("%+v", m)
	}
	s.stop(&budget)
}

// stop ends the session, and checks that nothing of it is left in the budget.
func (s *server) stop(b *Budget) {
	s.t.Helper()
	s.ws.Close()
	<-s.ended
	if b.connections.Load() != 0 || b.waiting.Load() != 0 {
		s.t.Errorf("%d connections and %d bytes are left", b.connections.Load(), b.waiting.Load())
	}
}

// TestEnd checks that the server gets all data before the end, and that the node does too.
func TestEnd(t *testing.T) {
	var budget Budget
	got := make(chan []byte, 1)
	s := start(t, nodes(t, func(c net.Conn) {
		c.Write([]byte("answer"))
		c.(*net.TCPConn).CloseWrite()
		c.Close()
	}), &budget)
	s.connect(1, "127.0.0.1:10250")
	if m := s.receive(); m.kind != kindData || string(m.content) != "answer" {
		t.Errorf("%+v: %s", m.header, m.content)
	}
	if m := s.receive(); m.kind != kindError || string(m.content) != "EOF" {
		t.Errorf("%+v: %s", m.header, m.content)
	}
	s.stop(&budget)
	release := make(chan struct{})
	s = start(t, nodes(t, func(c net.Conn) {
		<-release
		all, _ := io.ReadAll(c)
		got <- all
	}), &budget)
	s.connect(1, "127.0.0.1:10250")
	data := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // less than what causes a pause
	s.send(header{1, kindData}, data)
	s.send(header{1, kindError}, []byte("EOF"))
	close(release)
	if all := <-got; !bytes.Equal(all, data) {
		t.Errorf("the node got %d of %d bytes", len(all), len(data))
	}
	s.stop(&budget)
}

// TestPauseOfServer checks that a paused connection sends nothing, while others do.
func TestPauseOfServer(t *testing.T) {
	s := start(t, nodes(t, echo), &Budget{})
	s.connect(1, "127.0.0.1:10250")
	s.connect(2, "127.0.0.1:10250")
	s.send(header{1, kindPause}, nil)
	s.send(header{1, kindData}, []byte("first"))
	s.send(header{2, kindData}, []byte("second"))
	if m := s.receive(); m.conn != 2 {
		t.Errorf("%+v: %s", m.header, m.content)
	}
	s.send(header{1, kindResume}, nil)
	if m := s.receive(); m.conn != 1 || string(m.content) != "first" {
		t.Errorf("%+v: %s", m.header, m.content)
	}
}

// TestPauseOfNode checks that a slow node pauses its connection and resumes it, without loss.
func TestPauseOfNode(t *testing.T) {
	release, got := make(chan struct{}), make(chan int64, 1)
	var budget Budget
	s := start(t, nodes(t, func(c net.Conn) {
		<-release
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}), &budget)
	s.connect(1, "127.0.0.1:10250")
	block, sent := make([]byte, 16<<10), int64(0)
	for range 128 {
		s.send(header{1, kindData}, block)
		sent += int64(len(block))
	}
	if m := s.receive(); m.kind != kindPause || m.conn != 1 {
		t.Errorf("%+v: %s", m.header, m.content)
	}
	close(release)
	if m := s.receive(); m.kind != kindResume || m.conn != 1 {
		t.Errorf("%+v: %s", m.header, m.content)
	}
	s.send(header{1, kindData}, block)
	s.send(header{1, kindError}, []byte("EOF"))
	if n := <-got; n != sent+int64(len(block)) {
		t.Errorf("the node got %d of %d bytes", n, sent+int64(len(block)))
	}
}

// TestRefused checks that a forbidden address ends only its connection, and that the dialer is given what the server has sent.
func TestRefused(t *testing.T) {
	asked := ""
	s := start(t, func(_ context.Context, network, address string) (net.Conn, error) {
		asked = network + " " + address
		return nil, errors.New("forbidden")
	}, &Budget{})
	s.send(header{1, kindConnect}, []byte("udp/192.0.2.1:53"))
	if m := s.receive(); m.kind != kindError || m.conn != 1 || string(m.content) != "forbidden" || asked != "udp 192.0.2.1:53" {
		t.Errorf("%+v: %s, asked for %s", m.header, m.content, asked)
	}
	s.send(header{9, kindData}, []byte("x"))
	if m := s.receive(); m.kind != kindError || m.conn != 9 {
		t.Errorf("unknown connection: %+v", m)
	}
	for _, kind := range []int64{0, 4, 5, kindSyncConnections, 99, -1} { // other kinds are ignored
		s.send(header{1, kind}, []byte("x"))
	}
	s.connect(2, "x")
	if m := s.receive(); m.kind != kindError || m.conn != 2 {
		t.Errorf("%+v", m)
	}
}

// TestHostileServer checks that a hostile server reaches the limits, and neither memory nor connections beyond them.
func TestHostileServer(t *testing.T) {
	stuck := func(net.Conn) {} // reads nothing
	greet := func(c net.Conn) { c.Write([]byte("x")) }
	t.Run("too many connections", func(t *testing.T) {
		var budget Budget
		one, two, three := start(t, nodes(t, stuck), &budget), start(t, nodes(t, stuck), &budget), start(t, nodes(t, greet), &budget)
		for _, s := range []*server{one, two} {
			for i := range int64(maxSessionConnections) {
				s.connect(i, "a:1")
			}
			s.connect(maxSessionConnections, "a:1")
			if m := s.receive(); m.kind != kindError || m.conn != maxSessionConnections {
				t.Errorf("%+v", m)
			}
		}
		three.connect(1, "a:1")
		if m := three.receive(); m.kind != kindError || m.conn != 1 {
			t.Errorf("%+v", m)
		}
		one.ws.Close()
		<-one.ended
		if n := budget.connections.Load(); n != maxSessionConnections {
			t.Errorf("%d connections", n)
		}
		three.connect(2, "a:1")
		if m := three.receive(); m.kind != kindData || m.conn != 2 {
			t.Errorf("%+v", m)
		}
	})
	t.Run("no pause", func(t *testing.T) {
		var budget Budget
		s := start(t, nodes(t, stuck), &budget)
		block, most := make([]byte, 256<<10), int64(0)
		ended := make(chan struct{})
		go func() {
			for left := 4; left > 0; {
				if m := s.receive(); m.kind == kindError {
					left--
				}
			}
			close(ended)
		}()
		for i := range int64(4) {
			s.connect(i, "a:1")
		}
		for sending := true; sending; {
			select {
			case <-ended:
				sending = false
			default:
				for i := range int64(4) {
					s.send(header{i, kindData}, block)
				}
				most = max(most, budget.waiting.Load())
			}
		}
		if most > maxWaiting {
			t.Errorf("%d bytes have waited", most)
		}
		s.stop(&budget)
	})
	for name, attack := range map[string]func(s *server){
		"text":            func(s *server) { s.ws.WriteMessage(websocket.TextMessage, []byte("x")) },
		"a long message":  func(s *server) { s.ws.WriteMessage(websocket.BinaryMessage, make([]byte, maxMessage+1)) },
		"an empty one":    func(s *server) { s.ws.WriteMessage(websocket.BinaryMessage, nil) },
		"a long number":   func(s *server) { s.ws.WriteMessage(websocket.BinaryMessage, bytes.Repeat([]byte{0xff}, 100)) },
		"no address":      func(s *server) { s.send(header{1, kindConnect}, []byte("tcp")) },
		"the same number": func(s *server) { s.connect(1, "a:1"); s.connect(1, "a:1") },
		"a cut message":   func(s *server) { s.ws.WriteMessage(websocket.BinaryMessage, []byte{2, 2}) },
		"an endless frame": func(s *server) {
			s.ws.NetConn().Write([]byte{0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		},
	} {
		var budget Budget
		s := start(t, nodes(t, stuck), &budget)
		attack(s)
		if err := <-s.ended; err == nil {
			t.Errorf("%s: the session has no error", name)
		}
		if n, bytes := budget.connections.Load(), budget.waiting.Load(); n != 0 || bytes != 0 {
			t.Errorf("%s: %d connections and %d bytes are left in the budget", name, n, bytes)
		}
	}
}

// TestList checks that a session lists its connections.
func TestList(t *testing.T) {
	s := &Session{conns: map[int64]*connection{3: nil, 1: nil, 1 << 40: nil}, changed: true}
	sent := make(chan []byte, 1)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		_, b, err := ws.ReadMessage()
		if err != nil {
			t.Error(err)
		}
		sent <- b
	}))
	defer hs.Close()
	var err error
	if s.ws, _, err = websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(hs.URL, "http"), nil); err != nil {
		t.Fatal(err)
	}
	defer s.ws.Close()
	if err := errors.Join(s.sendList(), s.sendList()); err != nil { // the second one sends nothing
		t.Fatal(err)
	}
	b := <-sent
	want := appendHeader(nil, 1, header{kind: kindSyncConnections})
	for _, n := range []uint64{1, 3, 1 << 40} {
		want = binary.LittleEndian.AppendUint64(want, n)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("% x, want % x", b, want)
	}
}

// TestStop checks that the end of the context ends the session with all its connections, also with a node that reads nothing.
func TestStop(t *testing.T) {
	var budget Budget
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan *websocket.Conn, 1)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- ws
	}))
	defer hs.Close()
	node, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(hs.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, ws: <-opened}
	defer s.ws.Close()
	ended := make(chan error, 1)
	accepted := make(chan struct{}, 5)
	go func() { ended <- New(node, nodes(t, func(net.Conn) { accepted <- struct{}{} }), &budget).Run(ctx) }()
	for i := range int64(5) {
		s.connect(i, "a:1")
		for range 100 {
			s.send(header{i, kindData}, make([]byte, 32<<10))
		}
	}
	for range 5 {
		<-accepted
	}
	cancel()
	if err := <-ended; err != nil || budget.connections.Load() != 0 || budget.waiting.Load() != 0 {
		t.Errorf("%v, %d connections, %d bytes", err, budget.connections.Load(), budget.waiting.Load())
	}
}

// TestSilence checks the limits of time with a clock of a bubble: pings, the end of a silent session, and the quick end after Check.
func TestSilence(t *testing.T) {
	for _, check := range []bool{false, true} {
		t.Run(fmt.Sprint(check), func(t *testing.T) { silence(t, check) })
	}
}

// FuzzMessage sends any message to a session.
func FuzzMessage(f *testing.F) {
	f.Add(append(appendHeader(nil, 1, header{1, kindConnect}), "tcp/127.0.0.1:10250"...))
	f.Add(append(appendHeader(nil, 1, header{1, kindData}), "x"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		h, err := readHeader(r)
		if err != nil {
			return
		}
		if h.kind == kindConnect {
			network, address, err := readTarget(r)
			if err == nil && len(network)+len(address) > maxText {
				t.Errorf("%q %q", network, address)
			}
		}
	})
}
