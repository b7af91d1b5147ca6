package image

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxKept is the maximum number of transports that a Service keeps: one for the hosts without TLS or timeout settings of their own, and
	// one for each other host of a registry.
	maxKept = 8
	// maxIdle is the maximum number of connections of a transport: one to each host of a registry, and to its token server.
	maxIdle = 8
)

// keptTransports keeps the connections to the registry of a followed bundle between two requests, because a handshake costs more bytes than
// a request. The settings of the registry are still read before each request. A transport is used again only for the same certificates and
// at the same position in the settings. Its new connections use the current settings.
type keptTransports struct {
	mu   sync.Mutex
	list []*keptTransport // the most recently used transport is the last one
}

// A keptTransport is a transport that is used again.
type keptTransport struct {
	*http.Transport
	position int // of its client among the clients of a registry

	mu   sync.Mutex
	dial dialer // with the timeout of the current settings
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// find returns the kept transport with the position and the TLS settings of t. If there is none, it keeps t, whose connections then stay
// open for the duration idle and are not probed.
func (k *keptTransports) find(t *http.Transport, position int, idle time.Duration) *keptTransport {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, kept := range k.list {
		if kept.position == position && sameTLS(kept.TLSClientConfig, t.TLSClientConfig) {
			kept.setDialer(t.DialContext)
			k.list = append(slices.Delete(k.list, i, i+1), kept)
			return kept
		}
	}
	if len(k.list) == maxKept {
		k.list[0].CloseIdleConnections()
		k.list = slices.Delete(k.list, 0, 1)
	}
	kept := &keptTransport{Transport: t, position: position, dial: t.DialContext}
	t.DialContext = kept.connect
	t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = idle, maxIdle, 1
	t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(maxIdle)
	k.list = append(k.list, kept)
	return kept
}

// keepOnly closes the idle connections of all other transports, such as transports with a certificate that was replaced.
func (k *keptTransports) keepOnly(used []*keptTransport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(kept *keptTransport) bool {
		if slices.Contains(used, kept) {
			return false
		}
		kept.CloseIdleConnections()
		return true
	})
}

func (t *keptTransport) setDialer(d dialer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dial = d
}

// connect opens a connection without keepalive probes, which only cost more bytes.
func (t *keptTransport) connect(ctx context.Context, network, address string) (net.Conn, error) {
	t.mu.Lock()
	dial := t.dial
	t.mu.Unlock()
	c, err := dial(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(false)
	}
	return c, err
}

// sameTLS reports whether the settings of a registry give two clients the same TLS configuration.
func sameTLS(a, b *tls.Config) bool {
	return a.InsecureSkipVerify == b.InsecureSkipVerify && a.RootCAs.Equal(b.RootCAs) &&
		slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
			return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
		})
}
