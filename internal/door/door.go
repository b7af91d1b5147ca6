package door

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
)

// Bounds of a room.
const (
	maxFriends = 16 // addresses that were let in before
	perFriend  = 8  // strangers of each that do not give way
	maxCalls   = 8  // connections that the agent makes to itself at a time
)

// Config is what Listen needs.
type Config struct {
	What     string // what the port is, for the log
	Most     int    // connections at a time, besides sessions
	Sessions int    // connections that handlers took over, at a time
	// Friends are addresses that keep places from the start, such as the API server's.
	Friends []netip.Addr
	// Silence is how long a peer may leave everything unanswered while a write waits for it.
	// 0: pulse.Silence.
	Silence time.Duration
	Log     *slog.Logger
}

// A Listener accepts connections that have a place in its room. Watch must be called for the
// http.Server that serves them.
type Listener struct {
	net.Listener
	c Config

	mu       sync.Mutex
	conns    []*conn // strangers and known ones, the oldest first
	known    int     // of conns
	leaving  int     // closed here, and not yet given up by the server
	sessions int
	ahead    int          // bytes of strangers without an answer
	friends  []netip.Addr // that were let in, the latest last
	calls    []netip.AddrPort
	full     bool // was logged
	talking  bool // maxAhead was passed, and logged
}

// Listen bounds the connections of a listener.
func Listen(ln net.Listener, c Config) *Listener {
	c.Silence = cmp.Or(c.Silence, pulse.Silence)
	return &Listener{Listener: ln, c: c}
}

// A state is what a connection is in its room.
type state int

const (
	stranger state = iota
	known          // a request on it was let in
	session        // a handler took it over
	leaving        // it gave way; its server does not know yet
	gone
)

// A conn is a connection with a place. The lock of its listener guards its state.
type conn struct {
	net.Conn
	l    *Listener
	from netip.AddrPort
	is   state

	ahead int  // bytes of a stranger since its last answer
	taken bool // a handler has it; what it sends is not the server's any more

	blocked blocked // its writes
}

// Accept waits for a connection that finds a place.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(inner.RemoteAddr().String())
		c := &conn{Conn: inner, l: l, from: netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())}
		victim, ok := l.enter(c)
		if victim != nil {
			victim.Conn.Close() // its server's read or write fails
		}
		if ok {
			return c, nil
		}
		inner.Close()
	}
}

// enter gives a connection a place. Victim is the one that has lost its own, if any.
func (l *Listener) enter(c *conn) (victim *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.calls, c.from); i >= 0 {
		l.calls = slices.Delete(l.calls, i, i+1)
		c.is = known
	}
	if victim, ok = l.room(c); ok {
		l.conns = append(l.conns, c)
		if c.is == known {
			l.known++
		}
	}
	return victim, ok
}

// room makes room for a connection.
func (l *Listener) room(c *conn) (victim *conn, ok bool) {
	own := l.network(c.from.Addr())
	of := 0
	for _, o := range l.conns {
		if o.is == stranger && l.network(o.from.Addr()) == own {
			of++
		}
	}
	switch {
	case c.is == known || len(l.conns) < l.c.Most && of < l.c.Most/2:
		return nil, true
	case l.leaving >= l.c.Most: // its server is behind
	case len(l.conns) < l.c.Most: // a network has no more than half of the places
		victim = l.victim(&own)
	default:
		victim = l.victim(nil)
	}
	if !l.full {
		l.c.Log.Warn("a port has as many connections as it takes: those that have not authenticated give way", "port", l.c.What, "connections", len(l.conns), "authenticated", l.known, "from", c.from.Addr())
	}
	l.full = true
	if victim == nil {
		return nil, false
	}
	l.leave(victim)
	victim.is = leaving
	l.leaving++
	return victim, true
}

// victim is the oldest stranger of the address with the most strangers, in the network with the most;
// or in a given network.
func (l *Listener) victim(of *netip.Prefix) *conn {
	networks, addresses := map[netip.Prefix]int{}, map[netip.Addr]int{}
	for _, c := range l.conns {
		if n := l.network(c.from.Addr()); c.is == stranger && (of == nil || n == *of) {
			networks[n]++
			addresses[c.from.Addr()]++
		}
	}
	var out *conn
	for _, c := range l.conns {
		n, a := l.network(c.from.Addr()), c.from.Addr()
		if c.is != stranger || networks[n] == 0 || n.IsSingleIP() && networks[n] <= perFriend {
			continue
		}
		if out == nil {
			out = c
			continue
		}
		best := l.network(out.from.Addr())
		if networks[n] > networks[best] || n == best && addresses[a] > addresses[out.from.Addr()] {
			out = c
		}
	}
	return out
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// network is what an address is counted with. Only that of an address that keeps places is a single
// address.
func (l *Listener) network(a netip.Addr) netip.Prefix {
	if slices.Contains(l.friends, a) || slices.Contains(l.c.Friends, a) {
		return netip.PrefixFrom(a, a.BitLen())
	}
	if loopback.Contains(a) {
		return loopback
	}
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // of no address: the zero value, which is a network as well
	return p
}

// leave takes a connection out of the places. The caller holds mu.
func (l *Listener) leave(c *conn) {
	i := slices.Index(l.conns, c)
	if i < 0 {
		return
	}
	l.conns = slices.Delete(l.conns, i, i+1)
	c.answered()
	if c.is == known {
		l.known--
	}
	if len(l.conns) == 0 {
		l.conns = nil
	}
	l.full = l.full && len(l.conns) > l.c.Most/4 // a new flood is worth a new line
}

// Expect keeps a place for a connection that this process has made to the listener, by its local
// address: nobody can have the agent fail to reach itself. End is called when it is closed.
func (l *Listener) Expect(local net.Addr) (end func()) {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return func() {}
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.from == at && c.is == stranger {
			c.answered()
			c.is = known
			l.known++
			return func() {}
		}
	}
	if len(l.calls) < maxCalls {
		l.calls = append(l.calls, at)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = slices.DeleteFunc(l.calls, func(a netip.AddrPort) bool { return a == at })
	}
}

// NetConn is the connection below, for who closes its directions apart.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close gives the place back.
func (c *conn) Close() error {
	l := c.l
	l.mu.Lock()
	switch c.is {
	case stranger, known:
		l.leave(c)
	case session:
		l.sessions--
	case leaving:
		l.leaving--
	}
	c.is = gone
	l.mu.Unlock()
	return c.Conn.Close()
}

// admit makes a stranger known, and its address one that keeps places. Some places are always left to
// strangers, and no address has more than half as a known one: beyond that a connection gives way as
// a stranger does, though the last.
func (c *conn) admit() {
	l, addr := c.l, c.from.Addr()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.is != stranger {
		return
	}
	if !slices.Contains(l.c.Friends, addr) && (len(l.friends) == 0 || l.friends[len(l.friends)-1] != addr) {
		l.friends = append(slices.DeleteFunc(l.friends, func(a netip.Addr) bool { return a == addr }), addr)
		l.friends = l.friends[max(0, len(l.friends)-maxFriends):]
	}
	of := 0
	for _, o := range l.conns {
		if o.is == known && o.from.Addr() == addr {
			of++
		}
	}
	c.answered()
	if of < l.c.Most/2 && l.known < l.c.Most*3/4 {
		c.is = known
		l.known++
	}
}

// take makes a connection that a handler took over a session. If there are too many of these it
// stays among the others.
func (c *conn) take() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.taken = true
	c.answered()
	if c.is != stranger && c.is != known || l.sessions >= l.c.Sessions {
		return
	}
	l.leave(c)
	c.is = session
	l.sessions++
}

// rest is told when everything that a connection asked for was answered.
func (c *conn) rest() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.answered()
}

// behind finds the connection of a listener of this package behind what a server was given.
func behind(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

type connKey struct{}

// Watch has a server tell the room what becomes of its connections.
func Watch(hs *http.Server) {
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if own := behind(c); own != nil {
			return context.WithValue(ctx, connKey{}, own)
		}
		return ctx
	}
	hs.ConnState = func(c net.Conn, s http.ConnState) {
		own := behind(c)
		switch {
		case own == nil:
		case s == http.StateHijacked:
			own.take()
		case s == http.StateIdle:
			own.rest()
		}
	}
}

// Admitted tells the room that the request with this context was authenticated, and may do what it
// asks for. It must not be called for anonymous ones.
func Admitted(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.admit()
	}
}
