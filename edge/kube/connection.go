package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// dialTimeout limits each step of opening a connection. It is long enough for a bad link: with round trips of eight seconds, a
	// handshake takes half a minute. Callers may set shorter timeouts.
	dialTimeout = time.Minute
	// ackTimeout is the time for which the kernel waits for the acknowledgement of sent data. It is longer than several retransmissions,
	// because a slow link sometimes loses a packet twice.
	ackTimeout = time.Minute
	// pingAfter is the time without received data after which the client sends an HTTP/2 ping. It is longer than the interval of lease
	// renewals, so an idle node sends no pings. On a slow link, the reply can wait behind other data for a minute.
	pingAfter   = 45 * time.Second
	pingReply   = time.Minute
	keepAlive   = 15 * time.Second // interval of TCP probes of an idle connection
	idleTimeout = 90 * time.Second // time after which a connection without requests is closed
	tlsSessions = 4                // number of cached TLS sessions
)

// A connection contains everything that is needed to send requests with the credentials of one *rest.Config.
type connection struct {
	config    *rest.Config
	base      string // the server's URL, without a trailing slash
	transport *http.Transport
	http      *http.Client
	groups    map[schema.GroupVersion]*rest.RESTClient // protected by the Client's mu
}

func newConnection(c *Client, cfg *rest.Config) (*connection, error) {
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	if tc.UserAgent == "" {
		tc.UserAgent = UserAgent
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.Time = c.cfg.Now
	tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(tlsSessions)
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy:               cfg.Proxy,
		DialContext:         c.newDialer(tc),
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  cfg.DisableCompression,
		IdleConnTimeout:     idleTimeout,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingReply, MaxReceiveBufferPerStream: streamWindow},

		MaxResponseHeaderBytes: maxHeaders,
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	rt, err := transport.HTTPWrappersForConfig(tc, &gate{client: c, next: t})
	if err != nil {
		return nil, err
	}
	return &connection{
		config: cfg, base: serverURL(base), transport: t, http: &http.Client{Transport: rt, CheckRedirect: rejectRedirect},
		groups: map[schema.GroupVersion]*rest.RESTClient{},
	}, nil
}

// rejectRedirect keeps the client from following a redirect, because the target of the redirect would receive the node's token. An API
// server never sends redirects.
func rejectRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func serverURL(u *url.URL) string { return strings.TrimSuffix(u.String(), "/") }

func (conn *connection) client(c *Client, gv schema.GroupVersion) (*rest.RESTClient, error) {
	cfg := rest.Config{
		Host: conn.base,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes:   c.acceptHeader(""),
			ContentType:          c.mediaType(),
			GroupVersion:         &gv,
			NegotiatedSerializer: c.serializer(),
		},
		APIPath:        "/apis",
		RateLimiter:    c.limiter,
		WarningHandler: rest.NoWarnings{},
	}
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(&cfg, conn.http)
}

// newDialer returns a function that opens connections and registers them for CloseConnections.
func (c *Client) newDialer(tc *transport.Config) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: keepAlive, Count: 2},
		Control:         boundUnacknowledged,
	}
	dial := d.DialContext
	if tc.DialHolder != nil {
		dial = tc.DialHolder.Dial
	}
	if c.cfg.Dial != nil {
		dial = c.cfg.Dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.progress.connected(time.Since(began))
		t := &trackedConn{Conn: conn, client: c}
		c.mu.Lock()
		c.openConns[t] = struct{}{}
		c.mu.Unlock()
		return t, nil
	}
}

// boundUnacknowledged limits the time for which the kernel waits for the acknowledgement of sent data. After this time, the kernel closes
// the connection. The kernel's default is a quarter of an hour.
func boundUnacknowledged(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("set the timeout for acknowledgements: %w", err)
	}
	return nil
}

// A trackedConn is a network connection that CloseConnections can close.
type trackedConn struct {
	net.Conn
	client *Client
}

// Close also removes the connection from its client.
func (t *trackedConn) Close() error {
	t.client.mu.Lock()
	delete(t.client.openConns, t)
	t.client.mu.Unlock()
	return t.Conn.Close()
}

// Read also records progress.
func (t *trackedConn) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.client.progress.recordData()
	}
	return n, err
}
