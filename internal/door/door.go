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
	"sync/atomic"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
)

// These are the limits of a listener.
const (
	maxFriends = 16 // remembered addresses that authenticated
	perFriend  = 8  // number of strangers from each such address that are never closed to make room
	maxCalls   = 8  // concurrent connections from the agent itself
)

// Config is the configuration of a Listener.
type Config struct {
	What     string // the port's name in the log
	Most     int    // connections at a time, without sessions
	Sessions int    // hijacked connections at a time
	// Friends are addresses that have reserved places from the start, such as the API server's.
	Friends []netip.Addr
	// Silence is how long a peer may acknowledge nothing while a write is blocked. 0 means
	// pulse.Silence.
	Silence time.Duration
	Log     *slog.Logger
}

// A Listener accepts a bounded number of connections. Watch must be called for the http.Server that
// serves them.
type Listener struct {
	net.Listener
	c Config

	mu         sync.Mutex
	conns      []*conn // strangers and known connections, the oldest first
	known      int     // number of known connections in conns
	leaving    int     // connections that are closed here, but not yet by the server
	sessions   int
	unanswered int          // unanswered bytes of strangers
	friends    []netip.Addr // addresses that authenticated, the latest last
	calls      []netip.AddrPort
	fullLogged bool // the present flood is already logged
	overLogged bool // the excess over maxUnanswered is already logged
}

// Listen returns a Listener that bounds the connections of ln.
func Listen(ln net.Listener, c Config) *Listener {
	c.Silence = cmp.Or(c.Silence, pulse.Silence)
	return &Listener{Listener: ln, c: c}
}

// A state is the state of a connection.
type state int

const (
	stranger state = iota
	known          // a request on it was authenticated
	session        // a handler hijacked it
	leaving        // closed to make room; the server has not noticed yet
	gone
)

// A conn is an accepted connection. The listener's mutex guards state, unanswered and hijacked.
type conn struct {
	net.Conn
	l     *Listener
	from  netip.AddrPort
	state state

	unanswered int         // bytes that a stranger sent since its last answer
	hijacked   bool        // the server does not receive its data any more
	uncounted  atomic.Bool // the connection is known or hijacked, so Read neither counts nor locks

	blocked blockedWrites
}

// Accept returns the next connection that has got a place.
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
			victim.Conn.Close() // the server's read or write fails
		}
		if ok {
			return c, nil
		}
		inner.Close()
	}
}

// enter reserves a place for a connection. victim is the connection that has to be closed for it,
// or nil. ok is false if there is no place.
func (l *Listener) enter(c *conn) (victim *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.calls, c.from); i >= 0 {
		l.calls = slices.Delete(l.calls, i, i+1)
		c.state = known
		c.uncounted.Store(true)
	}
	if victim, ok = l.makeRoom(c); ok {
		l.conns = append(l.conns, c)
		if c.state == known {
			l.known++
		}
	}
	return victim, ok
}

// makeRoom finds a place for a connection. The caller holds mu.
func (l *Listener) makeRoom(c *conn) (victim *conn, ok bool) {
	own := l.network(c.from.Addr())
	of := 0
	for _, o := range l.conns {
		if o.state == stranger && l.network(o.from.Addr()) == own {
			of++
		}
	}
	switch {
	case c.state == known || len(l.conns) < l.c.Most && of < l.c.Most/2:
		return nil, true
	case l.leaving >= l.c.Most: // the server has not closed them yet
	case len(l.conns) < l.c.Most: // a network may have at most half of the places
		victim = l.victim(&own)
	default:
		victim = l.victim(nil)
	}
	if !l.fullLogged {
		l.c.Log.Warn("a port is full: connections that have not authenticated are closed", "port", l.c.What,
			"connections", len(l.conns), "authenticated", l.known, "from", c.from.Addr())
	}
	l.fullLogged = true
	if victim == nil {
		return nil, false
	}
	l.remove(victim)
	victim.state = leaving
	l.leaving++
	return victim, true
}

// victim returns the connection to close. It selects the network with the most strangers, unless within is another
// network; in it the address with the most strangers; and of these the oldest one. It returns nil if there is none.
func (l *Listener) victim(within *netip.Prefix) *conn {
	networks, addresses := map[netip.Prefix]int{}, map[netip.Addr]int{}
	for _, c := range l.conns {
		if n := l.network(c.from.Addr()); c.state == stranger && (within == nil || n == *within) {
			networks[n]++
			addresses[c.from.Addr()]++
		}
	}
	var out *conn
	for _, c := range l.conns {
		n, a := l.network(c.from.Addr()), c.from.Addr()
		if c.state != stranger || networks[n] == 0 || n.IsSingleIP() && networks[n] <= perFriend {
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

// network returns the network of an address. An address with reserved places is a network of its own.
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
	p, _ := a.Prefix(bits) // the zero value for an invalid address; it counts as a network
	return p
}

// remove frees the place of a connection. The caller holds mu.
func (l *Listener) remove(c *conn) {
	i := slices.Index(l.conns, c)
	if i < 0 {
		return
	}
	l.conns = slices.Delete(l.conns, i, i+1)
	c.resetUnanswered()
	if c.state == known {
		l.known--
	}
	if len(l.conns) == 0 {
		l.conns = nil
	}
	l.fullLogged = l.fullLogged && len(l.conns) > l.c.Most/4 // log the next flood again
}

// Expect reserves a place for a connection that this process opened to the listener, by its local
// address, so that a flood cannot prevent the agent from connecting to itself. The caller calls end
// when it has closed the connection.
func (l *Listener) Expect(local net.Addr) (end func()) {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return func() {}
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.from == at && c.state == stranger {
			c.resetUnanswered()
			c.state = known
			c.uncounted.Store(true)
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

// NetConn returns the underlying connection, for callers that close one direction.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close releases the place.
func (c *conn) Close() error {
	l := c.l
	l.mu.Lock()
	switch c.state {
	case stranger, known:
		l.remove(c)
	case session:
		l.sessions--
	case leaving:
		l.leaving--
	}
	c.state = gone
	l.mu.Unlock()
	return c.Conn.Close()
}

// admit turns a stranger into a known connection and adds its address to the remembered ones. A
// quarter of the places stays reserved for strangers, and an address may have at most half of the
// places as known connections. Beyond these limits, the connection stays a stranger, but its
// address is remembered.
func (c *conn) admit() {
	l, addr := c.l, c.from.Addr()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != stranger {
		return
	}
	if !slices.Contains(l.c.Friends, addr) && (len(l.friends) == 0 || l.friends[len(l.friends)-1] != addr) {
		l.friends = append(slices.DeleteFunc(l.friends, func(a netip.Addr) bool { return a == addr }), addr)
		l.friends = l.friends[max(0, len(l.friends)-maxFriends):]
	}
	of := 0
	for _, o := range l.conns {
		if o.state == known && o.from.Addr() == addr {
			of++
		}
	}
	c.resetUnanswered()
	if of < l.c.Most/2 && l.known < l.c.Most*3/4 {
		c.state = known
		c.uncounted.Store(true)
		l.known++
	}
}

// hijack turns a hijacked connection into a session. If there are too many sessions, the connection
// keeps its place among the other connections.
func (c *conn) hijack() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.hijacked = true
	c.uncounted.Store(true)
	c.resetUnanswered()
	if c.state != stranger && c.state != known || l.sessions >= l.c.Sessions {
		return
	}
	l.remove(c)
	c.state = session
	l.sessions++
}

// idle is called when all requests of a connection were answered.
func (c *conn) idle() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.resetUnanswered()
}

// connOf returns the conn of this package that a connection of the server wraps, or nil.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

type connKey struct{}

// Watch sets the server's hooks that report the state of its connections to the Listener.
func Watch(hs *http.Server) {
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if own := connOf(c); own != nil {
			return context.WithValue(ctx, connKey{}, own)
		}
		return ctx
	}
	hs.ConnState = func(c net.Conn, s http.ConnState) {
		own := connOf(c)
		switch {
		case own == nil:
		case s == http.StateHijacked:
			own.hijack()
		case s == http.StateIdle:
			own.idle()
		}
	}
}

// Admitted reports to the Listener that the request with this context was authenticated and
// authorized. It must not be called for anonymous requests.
func Admitted(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.admit()
	}
}
