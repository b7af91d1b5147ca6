package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/islet-edge/islet/edge/remotedialer"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// listInterval is the interval of reading the list of servers.
	listInterval = 30 * time.Minute
	// handshakeLimit is the time for opening a tunnel.
	handshakeLimit = 20 * time.Second
	// maxHandshake is the maximum number of bytes that a server may send until a tunnel is open.
	maxHandshake = 64 << 10
	// receiveBuffer is the size of the kernel's buffer for a tunnel in bytes. It limits what a server may still send after a Pause.
	receiveBuffer = 256 << 10
	// steadyAfter is the age of a tunnel after which its end is not an error of the server.
	steadyAfter = time.Minute
	// maxMessage is the maximum length of a server's message in an error.
	maxMessage = 200

	firstOpen, secondOpen, maxOpen = time.Second, 15 * time.Second, 2 * time.Minute
)

// tunnels keeps one tunnel to each server of the cluster.
type tunnels struct {
	*Supervisor
	record *k3s.Record
	wg     sync.WaitGroup
	// listNow has capacity 1. A value means that the servers can perhaps be listed now.
	listNow chan struct{}

	mu  sync.Mutex
	all map[string]*tunnel // by HOST:PORT
}

// A tunnel is the tunnel to one server.
type tunnel struct {
	address string
	cancel  context.CancelFunc
	wake    chan struct{} // capacity 1; a value means that an attempt may succeed now
	session atomic.Pointer[remotedialer.Session]
	remote  atomic.Pointer[netip.AddrPort] // of the open session
}

func newTunnels(s *Supervisor, r *k3s.Record) *tunnels {
	return &tunnels{Supervisor: s, record: r, listNow: make(chan struct{}, 1), all: map[string]*tunnel{}}
}

// run keeps the tunnels until ctx ends.
func (t *tunnels) run(ctx context.Context) error {
	defer t.wg.Wait()
	u, err := url.Parse(t.record.Server)
	if err != nil {
		return fmt.Errorf("the server of %s: %w", t.cfg.Directory, err)
	}
	first := t.add(ctx, u.Host)
	again := retry.Backoff{FirstWindow: firstOpen, SecondWindow: secondOpen, MaxWindow: maxOpen}
	failed := false
	for ctx.Err() == nil {
		servers, err := t.list(ctx)
		if err != nil {
			if ctx.Err() == nil && !failed {
				failed = true
				t.cfg.Log.Warn("the servers of the cluster cannot be listed, so the known ones stay", "server", t.record.Server,
					"error", err)
			}
			_, _ = again.Wait(ctx, 0, t.listNow)
			continue
		}
		failed = false
		again.Reset()
		t.set(ctx, first, servers)
		wait := time.NewTimer(retry.Jitter(listInterval))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
	return nil
}

// list returns the addresses of all servers.
func (t *tunnels) list(ctx context.Context) ([]netip.AddrPort, error) {
	ca, err := serverCA(t.cfg.Directory)
	if err != nil {
		return nil, err
	}
	c, err := k3s.New(k3s.Config{Server: t.record.Server, CA: ca, Certificate: t.cfg.Link.ClientCertificate(), Now: t.cfg.Link.Now})
	if err != nil {
		return nil, err
	}
	return c.APIServers(ctx)
}

// set opens the missing tunnels, and closes those to servers that are gone. The tunnel to the server of the join stays, because the others
// may have addresses that only their own network knows. There are at most k3s.MaxServers tunnels.
func (t *tunnels) set(ctx context.Context, first *tunnel, servers []netip.AddrPort) {
	wanted := map[string]bool{first.address: true}
	for _, a := range servers {
		if r := first.remote.Load(); len(wanted) < k3s.MaxServers && (r == nil || *r != a) {
			wanted[a.String()] = true
		}
	}
	t.mu.Lock()
	for address, one := range t.all {
		if !wanted[address] {
			one.cancel()
			delete(t.all, address)
		}
		delete(wanted, address)
	}
	t.mu.Unlock()
	for address := range wanted {
		t.add(ctx, address)
	}
}

// add starts a tunnel.
func (t *tunnels) add(ctx context.Context, address string) *tunnel {
	one := &tunnel{address: address, wake: make(chan struct{}, 1)}
	ctx, one.cancel = context.WithCancel(ctx)
	t.mu.Lock()
	t.all[address] = one
	t.mu.Unlock()
	t.wg.Go(func() {
		defer one.cancel()
		t.keep(ctx, one)
	})
	return one
}

// networkChanged checks the open tunnels, and retries to open the others. It also retries to list the servers.
func (t *tunnels) networkChanged() {
	signal(t.listNow)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		if open := one.session.Load(); open != nil {
			open.Check()
		}
		signal(one.wake)
	}
}

// keep opens a tunnel again and again until ctx ends.
func (t *tunnels) keep(ctx context.Context, one *tunnel) {
	again := retry.Backoff{FirstWindow: firstOpen, SecondWindow: secondOpen, MaxWindow: maxOpen}
	logged := ""
	for ctx.Err() == nil {
		began := time.Now()
		opened, err := t.serve(ctx, one)
		if ctx.Err() != nil {
			return
		}
		if opened {
			logged = ""
		}
		if opened && time.Since(began) >= steadyAfter {
			again.Reset()
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			t.cfg.Log.Warn("there is no tunnel to a k3s server, so the server cannot show logs or run commands here", "server", one.address,
				"error", err)
		}
		_, _ = again.Wait(ctx, 0, one.wake)
	}
}

// serve opens a tunnel and serves it until it ends.
func (t *tunnels) serve(ctx context.Context, one *tunnel) (opened bool, err error) {
	ws, err := t.open(ctx, one)
	if err != nil {
		return false, err
	}
	session := remotedialer.New(ws, t.dialNode, &t.budget)
	one.session.Store(session)
	defer one.session.Store(nil)
	defer one.remote.Store(nil)
	t.cfg.Log.Info("a tunnel to a k3s server is open", "server", one.address)
	signal(t.renewNow) // the node's addresses may have changed
	signal(t.listNow)
	return true, session.Run(ctx)
}

// open opens the WebSocket of a tunnel.
func (t *tunnels) open(ctx context.Context, one *tunnel) (*websocket.Conn, error) {
	cert := t.cfg.Link.ClientCertificate()
	if cert == nil {
		return nil, errors.New("the node has no client certificate")
	}
	ca, err := serverCA(t.cfg.Directory)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", t.cfg.Directory.ServerCA())
	}
	var limited *limitedConn
	d := websocket.Dialer{
		HandshakeTimeout: handshakeLimit, ReadBufferSize: 4096, WriteBufferSize: 16 << 10,
		NetDialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if tcp, ok := raw.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(receiveBuffer)
				if a, ok := tcp.RemoteAddr().(*net.TCPAddr); ok {
					remote := netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
					one.remote.Store(&remote)
				}
			}
			secure := tls.Client(raw, &tls.Config{
				RootCAs: pool, Certificates: []tls.Certificate{*cert}, ServerName: host, MinVersion: tls.VersionTLS12,
				NextProtos: []string{"http/1.1"}, Time: t.cfg.Link.Now,
			})
			if err := secure.HandshakeContext(ctx); err != nil {
				raw.Close()
				return nil, err
			}
			limited = &limitedConn{Conn: secure}
			limited.left.Store(maxHandshake)
			return limited, nil
		},
	}
	ws, answer, err := d.DialContext(ctx, "wss://"+one.address+"/v1-k3s/connect", nil)
	if err != nil {
		return nil, explain(err, answer)
	}
	limited.unlimited.Store(true)
	return ws, nil
}

// explain adds the answer of the server to an error.
func explain(err error, answer *http.Response) error {
	if answer == nil {
		return err
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxMessage)) // the dialer has read the body
	return fmt.Errorf("%w: %s: %s", err, printable.Cut(answer.Status, maxMessage), printable.Cut(string(body), maxMessage))
}

// A limitedConn is a connection on which the other side may send a limited number of bytes, until that is lifted.
type limitedConn struct {
	net.Conn
	left      atomic.Int64
	unlimited atomic.Bool
}

// Read implements net.Conn.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.unlimited.Load() && c.left.Add(-int64(n)) < 0 {
		return 0, errors.New("the answer of the server is too long")
	}
	return n, err
}

// dialNode connects a server to the kubelet API of this node. It refuses all other addresses.
func (s *Supervisor) dialNode(ctx context.Context, network, address string) (net.Conn, error) {
	target, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp" || target.Port() != uint16(s.cfg.Port) || !s.isOwn(target.Addr().Unmap()) {
		return nil, fmt.Errorf("this node allows connections only to its own kubelet API, on port %d", s.cfg.Port)
	}
	host := target.Addr()
	if !host.IsLoopback() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if listens, err := netip.ParseAddr(s.cfg.Address); err == nil {
		switch {
		case !listens.IsUnspecified():
			host = listens
		case listens.Is4():
			host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host.String(), strconv.Itoa(int(s.cfg.Port))))
}

// isOwn reports whether an address is one of this node.
func (s *Supervisor) isOwn(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	for _, own := range s.addresses() {
		if own == ip {
			return true
		}
	}
	return false
}
