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

// maxKept is the maximum number of transports that a Service keeps: two for each server of a registry with mirrors.
const maxKept = 8

// keptTransports keeps the connections to the registry of a followed bundle between two requests, because a handshake costs more bytes than
// a request. The settings of the registry are still read before each request: a transport is used again only for the same certificates.
type keptTransports struct {
	mu   sync.Mutex
	list []*http.Transport
}

// find returns the kept transport with the TLS settings of t. If there is none, it keeps t, whose connections then stay open for the
// duration idle and are not probed.
func (k *keptTransports) find(t *http.Transport, idle time.Duration) *http.Transport {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kept := range k.list {
		if sameTLS(kept.TLSClientConfig, t.TLSClientConfig) {
			return kept
		}
	}
	if len(k.list) == maxKept {
		k.list[0].CloseIdleConnections()
		k.list = slices.Delete(k.list, 0, 1)
	}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(false) // it only costs more bytes otherwise
		}
		return c, err
	}
	t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = idle, 2, 1 // the registry, and perhaps its token server
	t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(2)
	k.list = append(k.list, t)
	return t
}

// sameTLS reports whether the settings of a registry give two clients the same TLS configuration.
func sameTLS(a, b *tls.Config) bool {
	return a.InsecureSkipVerify == b.InsecureSkipVerify && a.RootCAs.Equal(b.RootCAs) &&
		slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
			return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
		})
}
