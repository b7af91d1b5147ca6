package connlimit

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
	maxRemembered  = 16 // addresses of authenticated requests that are remembered
	reservedPlaces = 8  // unauthenticated connections of a remembered or reserved address that are never closed to make room
	maxCalls       = 8  // concurrent connections from the agent itself
)

// Config is the configuration of a Listener.
type Config struct {
	PortName       string // the port's name in the log
	MaxConnections int    // maximum number of connections at a time, without sessions
	Sessions       int    // maximum number of hijacked connections at a time
	// Reserved lists addresses that have reserved places from the start, such as the API server's.
	Reserved []netip.Addr
	// Silence is the time without an acknowledgement after which the peer of a blocked write counts
	// as lost. 0 means pulse.Silence.
	Silence time.Duration
	Log     *slog.Logger
}

// A Listener accepts a bounded number of connections. Watch must be called for the http.Server that
// serves them.
type Listener struct {
	net.Listener
	c Config

	mu                 sync.Mutex
	conns              []*conn // unauthenticated and authenticated connections, the oldest first
	authenticated      int     // number of authenticated connections in conns
	closing            int     // number of connections that the Listener has closed and the server has not closed yet
	sessions           int
	unanswered         int          // unanswered bytes of all unauthenticated connections
	authenticatedAddrs []netip.Addr // addresses of authenticated requests, the latest last
	ownCalls           []netip.AddrPort
	fullLogged         bool // the current lack of places was logged
	overLogged         bool // the excess over maxUnanswered is already logged
}

// Listen returns a Listener that limits the connections of ln.
func Listen(ln net.Listener, c Config) *Listener {
	c.Silence = cmp.Or(c.Silence, pulse.Silence)
	return &Listener{Listener: ln, c: c}
}

// A state defines whether a connection is authenticated, hijacked or closed.
type state int

const (
	unauthenticated state = iota
	authenticated         // a request on it was authenticated
	session               // a handler hijacked it
	closing               // closed to make room, but not closed by the server yet
	closed
)

// A conn is an accepted connection. The listener's mutex guards state, unanswered and hijacked.
type conn struct {
	net.Conn
	l     *Listener
	from  netip.AddrPort
	state state

	unanswered int         // bytes that the client of an unauthenticated connection sent since the last response
	hijacked   bool        // the server does not receive the connection's data any more
	uncounted  atomic.Bool // the connection is authenticated or hijacked, so Read neither counts bytes nor locks

	blocked blockedWrites
}

// Accept returns the next connection for which there is a place.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(inner.RemoteAddr().String())
		c := &conn{Conn: inner, l: l, from: netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())}
		victim, ok := l.takePlace(c)
		if victim != nil {
			victim.Conn.Close() // the server's read or write fails
		}
		if ok {
			return c, nil
		}
		inner.Close()
	}
}

// takePlace reserves a place for a connection. If another connection has to be closed to make room, takePlace returns that connection as
// the victim. The second result is false if there is no place.
func (l *Listener) takePlace(c *conn) (victim *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.ownCalls, c.from); i >= 0 {
		l.ownCalls = slices.Delete(l.ownCalls, i, i+1)
		c.state = authenticated
		c.uncounted.Store(true)
	}
	if victim, ok = l.findPlace(c); ok {
		l.conns = append(l.conns, c)
		if c.state == authenticated {
			l.authenticated++
		}
	}
	return victim, ok
}

// findPlace finds a place for a connection, and closes another one if necessary. The caller holds mu.
func (l *Listener) findPlace(c *conn) (victim *conn, ok bool) {
	own := l.networkOf(c.from.Addr())
	count := 0
	for _, o := range l.conns {
		if o.state == unauthenticated && l.networkOf(o.from.Addr()) == own {
			count++
		}
	}
	switch {
	case c.state == authenticated || len(l.conns) < l.c.MaxConnections && count < l.c.MaxConnections/2:
		return nil, true
	case l.closing >= l.c.MaxConnections: // the server has not closed the earlier victims yet
	case len(l.conns) < l.c.MaxConnections: // a network may have at most half of the places
		victim = l.selectVictim(&own)
	default:
		victim = l.selectVictim(nil)
	}
	if !l.fullLogged {
		l.c.Log.Warn("a port has too many connections: unauthenticated connections are closed", "port", l.c.PortName,
			"connections", len(l.conns), "authenticated", l.authenticated, "from", c.from.Addr())
	}
	l.fullLogged = true
	if victim == nil {
		return nil, false
	}
	l.freePlace(victim)
	victim.state = closing
	l.closing++
	return victim, true
}

// selectVictim returns the connection to close, or nil if there is none. It considers only the given network. If no network is given, it
// considers the network with the most unauthenticated connections. In this network it selects the address with the most unauthenticated
// connections, and returns the oldest connection of that address.
func (l *Listener) selectVictim(within *netip.Prefix) *conn {
	networks, addresses := map[netip.Prefix]int{}, map[netip.Addr]int{}
	for _, c := range l.conns {
		if n := l.networkOf(c.from.Addr()); c.state == unauthenticated && (within == nil || n == *within) {
			networks[n]++
			addresses[c.from.Addr()]++
		}
	}
	var out *conn
	for _, c := range l.conns {
		n, a := l.networkOf(c.from.Addr()), c.from.Addr()
		if c.state != unauthenticated || networks[n] == 0 || n.IsSingleIP() && networks[n] <= reservedPlaces {
			continue
		}
		if out == nil {
			out = c
			continue
		}
		best := l.networkOf(out.from.Addr())
		if networks[n] > networks[best] || n == best && addresses[a] > addresses[out.from.Addr()] {
			out = c
		}
	}
	return out
}

var loopbackPrefix = netip.MustParsePrefix("127.0.0.0/8")

// networkOf returns the network of an address. An address with reserved places is a network of its
// own.
func (l *Listener) networkOf(a netip.Addr) netip.Prefix {
	if slices.Contains(l.authenticatedAddrs, a) || slices.Contains(l.c.Reserved, a) {
		return netip.PrefixFrom(a, a.BitLen())
	}
	if loopbackPrefix.Contains(a) {
		return loopbackPrefix
	}
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // p is the zero value for an invalid address; all such addresses count as one network
	return p
}

// freePlace frees the place of a connection. The caller holds mu.
func (l *Listener) freePlace(c *conn) {
	i := slices.Index(l.conns, c)
	if i < 0 {
		return
	}
	l.conns = slices.Delete(l.conns, i, i+1)
	c.resetUnanswered()
	if c.state == authenticated {
		l.authenticated--
	}
	if len(l.conns) == 0 {
		l.conns = nil
	}
	l.fullLogged = l.fullLogged && len(l.conns) > l.c.MaxConnections/4 // log the next lack of places again
}

// Reserve reserves a place for a connection from this process to the listener, so that the agent can connect to itself while the port is
// full. The connection is identified by its local address. After the caller has closed the connection, the caller must call the returned
// function.
func (l *Listener) Reserve(local net.Addr) (end func()) {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return func() {}
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.from == at && c.state == unauthenticated {
			c.resetUnanswered()
			c.state = authenticated
			c.uncounted.Store(true)
			l.authenticated++
			return func() {}
		}
	}
	if len(l.ownCalls) < maxCalls {
		l.ownCalls = append(l.ownCalls, at)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ownCalls = slices.DeleteFunc(l.ownCalls, func(a netip.AddrPort) bool { return a == at })
	}
}

// NetConn returns the underlying connection, for callers that close one direction.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close releases the place.
func (c *conn) Close() error {
	l := c.l
	l.mu.Lock()
	switch c.state {
	case unauthenticated, authenticated:
		l.freePlace(c)
	case session:
		l.sessions--
	case closing:
		l.closing--
	}
	c.state = closed
	l.mu.Unlock()
	return c.Conn.Close()
}

// setAuthenticated marks an unauthenticated connection as authenticated, and remembers the
// connection's address. At least a quarter of the places stays free for unauthenticated
// connections, and the authenticated connections of an address take at most half of the places.
// Beyond these limits, the connection stays unauthenticated, but its address is remembered.
func (c *conn) setAuthenticated() {
	l, addr := c.l, c.from.Addr()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != unauthenticated {
		return
	}
	if !slices.Contains(l.c.Reserved, addr) && (len(l.authenticatedAddrs) == 0 ||
		l.authenticatedAddrs[len(l.authenticatedAddrs)-1] != addr) {
		l.authenticatedAddrs = append(slices.DeleteFunc(l.authenticatedAddrs, func(a netip.Addr) bool { return a == addr }), addr)
		l.authenticatedAddrs = l.authenticatedAddrs[max(0, len(l.authenticatedAddrs)-maxRemembered):]
	}
	count := 0
	for _, o := range l.conns {
		if o.state == authenticated && o.from.Addr() == addr {
			count++
		}
	}
	c.resetUnanswered()
	if count < l.c.MaxConnections/2 && l.authenticated < l.c.MaxConnections*3/4 {
		c.state = authenticated
		c.uncounted.Store(true)
		l.authenticated++
	}
}

// setHijacked makes a hijacked connection a session. If there are too many sessions, the connection
// keeps its place among the other connections.
func (c *conn) setHijacked() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.hijacked = true
	c.uncounted.Store(true)
	c.resetUnanswered()
	if c.state != unauthenticated && c.state != authenticated || l.sessions >= l.c.Sessions {
		return
	}
	l.freePlace(c)
	c.state = session
	l.sessions++
}

// setIdle is called when all requests of a connection were answered. It resets the count of
// unanswered bytes.
func (c *conn) setIdle() {
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

// Watch sets hooks of the server. They report the states of the server's connections to the
// Listener.
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
			own.setHijacked()
		case s == http.StateIdle:
			own.setIdle()
		}
	}
}

// A Client is the origin of a request. Its network has only one address if the address has reserved places or has sent an authenticated
// request before.
type Client struct {
	Addr    netip.Addr
	Network netip.Prefix
}

// ClientOf returns the client whose request has this context. The result is the zero value if no Listener of this package accepted the
// connection.
func ClientOf(ctx context.Context) Client {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return Client{}
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return Client{c.from.Addr(), c.l.networkOf(c.from.Addr())}
}

// ReportAuthenticated reports to the Listener that the request with this context was authenticated
// and authorized. It must not be called for anonymous requests.
func ReportAuthenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.setAuthenticated()
	}
}
