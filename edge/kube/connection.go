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
	// dialTimeout bounds each step to a connection: with round trips of eight seconds a
	// handshake takes half a minute. Who waits for it gives up earlier.
	dialTimeout = time.Minute
	// unacknowledged is how long sent data may wait for the peer's kernel: a thin link
	// loses a packet and its repetition now and then.
	unacknowledged = time.Minute
	// silence is after how long without a received byte the peer is pinged. It is
	// longer than a lease's interval, so that an idle node never pings. The reply waits
	// in line behind what is under way, for a minute on a thin link.
	silence   = 45 * time.Second
	pingReply = time.Minute
	keepAlive = 15 * time.Second // of TCP, between probes of an idle connection
	idle      = 90 * time.Second // how long a connection without requests is kept
	sessions  = 4                // of TLS, kept for resumption
)

// A connection is the use of one *rest.Config.
type connection struct {
	config    *rest.Config
	base      string // the server's URL, without a slash at the end
	transport *http.Transport
	http      *http.Client
	groups    map[schema.GroupVersion]*rest.RESTClient // guarded by the Client's mu
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
	tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		Proxy:               cfg.Proxy,
		DialContext:         c.dialer(tc),
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  cfg.DisableCompression,
		IdleConnTimeout:     idle,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: pingReply, MaxReceiveBufferPerStream: streamWindow},

		MaxResponseHeaderBytes: mostHeaders,
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	rt, err := transport.HTTPWrappersForConfig(tc, &gate{client: c, next: t})
	if err != nil {
		return nil, err
	}
	return &connection{
		config: cfg, base: serverURL(base), transport: t, http: &http.Client{Transport: rt, CheckRedirect: stay},
		groups: map[schema.GroupVersion]*rest.RESTClient{},
	}, nil
}

// stay follows no redirect: the API server gives none, and where it leads to would get the
// node's token.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func serverURL(u *url.URL) string { return strings.TrimSuffix(u.String(), "/") }

func (conn *connection) client(c *Client, gv schema.GroupVersion) (*rest.RESTClient, error) {
	cfg := rest.Config{
		Host: conn.base,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes:   c.accepts(""),
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

// dialer makes connections that CloseConnections finds.
func (c *Client) dialer(tc *transport.Config) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: keepAlive, Count: 2},
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
		t := &tracked{Conn: conn, client: c}
		c.mu.Lock()
		c.open[t] = struct{}{}
		c.mu.Unlock()
		return t, nil
	}
}

// boundUnacknowledged lets the kernel give up a connection whose peer does not
// acknowledge what was sent; by default it would go on for a quarter of an hour.
func boundUnacknowledged(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("bound the time for acknowledgements: %w", err)
	}
	return nil
}

// tracked is a connection that its client knows of until it is closed.
type tracked struct {
	net.Conn
	client *Client
}

// Close also forgets the connection.
func (t *tracked) Close() error {
	t.client.mu.Lock()
	delete(t.client.open, t)
	t.client.mu.Unlock()
	return t.Conn.Close()
}

// Read also notes that something arrived.
func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.client.progress.heard()
	}
	return n, err
}
