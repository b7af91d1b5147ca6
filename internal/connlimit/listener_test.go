package connlimit

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"testing"
)

var quiet = slog.New(slog.DiscardHandler)

// discardLog returns a logger that discards the server's messages about aborted connections.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// A fake is a net.Conn that records only whether it was closed.
type fake struct {
	net.Conn
	closed bool
}

func (f *fake) Read(b []byte) (int, error) { return len(b), nil }

func (f *fake) Close() error { f.closed = true; return nil }

// A testListener is a Listener whose connections have arbitrary addresses.
type testListener struct {
	*testing.T
	*Listener
	port uint16
}

func newHouse(t *testing.T, most int) *testListener {
	return &testListener{T: t, Listener: Listen(nil, Config{PortName: "a test", MaxConnections: most, Sessions: 2, Log: quiet})}
}

// connect adds a connection from an address. It returns nil if the connection is rejected.
func (h *testListener) connect(addr string) *conn {
	h.port++
	c := &conn{Conn: &fake{}, l: h.Listener, from: netip.AddrPortFrom(netip.MustParseAddr(addr), h.port)}
	victim, ok := h.Listener.takePlace(c)
	if victim != nil {
		victim.Conn.Close()
	}
	if !ok {
		return nil
	}
	return c
}

func (h *testListener) fill(n int, addrs ...string) (out []*conn) {
	for i := range n {
		out = append(out, h.connect(addrs[i%len(addrs)]))
	}
	return out
}

func (h *testListener) lost(c *conn) bool { return c == nil || c.state == closing }

func (h *testListener) has(n int) {
	h.Helper()
	if len(h.conns) != n {
		h.Errorf("%d connections, want %d", len(h.conns), n)
	}
}

// TestGivesWay checks which connection is closed when all places are taken: the oldest unauthenticated connection. It belongs to the
// network with the most connections, and to the address with the most connections in this network.
func TestGivesWay(t *testing.T) {
	h := newHouse(t, 8)
	lan := h.connect("192.0.2.7")
	pods := h.fill(4, "10.42.0.5")
	one, two := h.connect("127.0.0.2"), h.connect("127.0.0.3")
	last := h.connect("127.0.0.2")
	h.has(8)
	admin := h.connect("203.0.113.9")
	if !h.lost(pods[0]) || h.lost(pods[1]) || h.lost(lan) || h.lost(admin) {
		t.Error("the oldest connection of the pods was not closed")
	}
	next := h.connect("203.0.113.10") // both networks have three connections: the older network loses one
	if !h.lost(pods[1]) || h.lost(admin) || h.lost(next) {
		t.Error("a connection of a network with fewer connections was closed")
	}
	h.connect("198.51.100.1")
	if !h.lost(one) || h.lost(two) || h.lost(last) {
		t.Error("the oldest connection of the address with the most connections was not closed")
	}
	h.has(8)
}

// TestHalf checks that the unauthenticated connections of one network take at most half of the places. A further connection closes the
// oldest connection of the same network.
func TestHalf(t *testing.T) {
	h := newHouse(t, 8)
	first := h.fill(4, "10.42.0.5", "10.42.0.6")
	for range 100 {
		c := h.connect("10.42.0.7")
		if c == nil {
			t.Fatal("a new connection is refused")
		}
		h.has(4)
		first = append(first, c)
		for _, old := range first {
			if h.lost(old) {
				old.Close() // closed by the server
			}
		}
	}
	if h.closing != 0 {
		t.Errorf("%d connections were never removed", h.closing)
	}
}

// TestServerIsBehind checks a server that is slow to close the connections that the Listener has closed. The Listener limits the number of
// such connections.
func TestServerIsBehind(t *testing.T) {
	h := newHouse(t, 8)
	all := h.fill(100, "10.42.0.5")
	if h.closing != 8 || all[99] != nil {
		t.Errorf("%d connections were closed, and their server did nothing", h.closing)
	}
	for _, c := range all {
		if c != nil {
			c.Close()
		}
	}
	h.has(0)
	if h.closing != 0 || h.connect("10.42.0.5") == nil {
		t.Error("no place came back")
	}
}

// TestKnownStay checks that authenticated connections are not closed. The Listener reserves places for further connections from the address
// of an authenticated request. Authenticated connections cannot take all places.
func TestKnownStay(t *testing.T) {
	h := newHouse(t, 32)
	server := h.connect("192.0.2.1")
	server.setAuthenticated()
	next := h.connect("192.0.2.1")
	for range 1000 {
		for _, a := range []string{"10.42.0.5", "127.0.0.2", "192.0.2.66", "198.51.100.1"} {
			if c := h.connect(a); c == nil {
				t.Fatal("refused")
			}
		}
		for _, c := range append([]*conn{}, h.conns...) {
			if c.state == closing {
				c.Close()
			}
		}
		h.closing = 0 // the server has closed these connections
	}
	if h.lost(server) || h.lost(next) {
		t.Error("an authenticated address lost its places")
	}
	greedy := h.fill(16, "192.0.2.1")
	for _, c := range greedy {
		if c != nil {
			c.setAuthenticated()
		}
	}
	for i := range 40 {
		if c := h.connect(netip.AddrFrom4([4]byte{198, 51, byte(i), 1}).String()); c != nil {
			c.setAuthenticated()
		}
	}
	if h.authenticated > 24 {
		t.Errorf("%d of 32 places are of known ones", h.authenticated)
	}
	h.closing = 0
	if h.connect("203.0.113.9") == nil {
		t.Error("authenticated connections occupy all places")
	}
}

// TestTooManyFriends checks that the number of remembered addresses is limited. At most half of all places may be reserved for these
// addresses.
func TestTooManyFriends(t *testing.T) {
	h := newHouse(t, 256)
	for i := range 100 {
		c := h.connect(netip.AddrFrom4([4]byte{10, byte(i), 0, 1}).String())
		c.setAuthenticated()
		c.Close()
	}
	if len(h.authenticatedAddrs) != maxRemembered || len(h.authenticatedAddrs)*reservedPlaces > h.c.MaxConnections/2 {
		t.Errorf("%d addresses keep places", len(h.authenticatedAddrs))
	}
	for i := range 100 {
		h.fill(reservedPlaces, netip.AddrFrom4([4]byte{10, byte(i), 0, 1}).String())
	}
	h.closing = 0
	if h.connect("203.0.113.9") == nil {
		t.Error("a connection from a new address was rejected")
	}
}

// TestExpect checks that a connection of the agent to itself keeps its place. The connection is accepted before or after the call of
// Reserve.
func TestExpect(t *testing.T) {
	h := newHouse(t, 8)
	early := h.connect("127.0.0.1")
	h.Reserve(net.TCPAddrFromAddrPort(early.from))()
	end := h.Reserve(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(h.port) + 1})
	late := h.connect("127.0.0.1")
	for range 50 {
		h.connect("127.0.0.1")
		h.closing = 0
	}
	end()
	if h.lost(early) || h.lost(late) || early.state != authenticated || late.state != authenticated {
		t.Error("a connection of the agent to itself was closed")
	}
	for i := range 100 {
		defer h.Reserve(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 20000 + i})()
	}
	if len(h.ownCalls) > maxCalls {
		t.Errorf("%d calls are expected", len(h.ownCalls))
	}
}

// TestSessionsApart checks that hijacked connections need no place, up to a limit.
func TestSessionsApart(t *testing.T) {
	h := newHouse(t, 8)
	all := h.fill(4, "192.0.2.1")
	for _, c := range all {
		c.setAuthenticated()
		c.setHijacked()
	}
	if h.sessions != 2 || len(h.conns) != 2 {
		t.Errorf("%d sessions, %d connections", h.sessions, len(h.conns))
	}
	for _, c := range all {
		c.Close()
		c.Close()
		c.setAuthenticated()
		c.setHijacked()
	}
	if h.sessions != 0 || h.authenticated != 0 || len(h.conns) != 0 {
		t.Errorf("in the end %d sessions, %d known ones, %d connections", h.sessions, h.authenticated, len(h.conns))
	}
}

// TestClientOf checks which network a request has. An address that was authenticated before is a network of its own.
func TestClientOf(t *testing.T) {
	h := newHouse(t, 8)
	of := func(addr string) string {
		c := ClientOf(context.WithValue(t.Context(), connKey{}, h.connect(addr)))
		if c.Addr.String() != addr {
			t.Errorf("got the address %s", c.Addr)
		}
		return c.Network.String()
	}
	if got := of("192.0.2.7") + " " + of("fd00::7") + " " + of("127.0.0.3"); got != "192.0.2.0/24 fd00::/64 127.0.0.0/8" {
		t.Error(got)
	}
	ReportAuthenticated(context.WithValue(t.Context(), connKey{}, h.connect("192.0.2.7")))
	if got := of("192.0.2.7") + " " + of("192.0.2.8"); got != "192.0.2.7/32 192.0.2.0/24" {
		t.Error(got)
	}
	if got := ClientOf(t.Context()); got != (Client{}) {
		t.Errorf("a request of another listener is from %v", got)
	}
}
