package ports

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/islet-edge/islet/internal/connlimit"
)

// reachTimeout is the timeout of CheckReachable.
const reachTimeout = 5 * time.Second

// CheckReachable tests whether an API server could use the kubelet API, and returns an error if it could not.
// It makes an HTTPS request to the port at an address of the node, with the node's own client certificate.
// The port must accept this certificate, because the same CA signs the certificate of the API server. If cert
// is nil, any response is a success.
func (o *Ports) CheckReachable(ctx context.Context, ips []netip.Addr, cert *tls.Certificate) error {
	for _, p := range o.all {
		if p.field != "port" {
			continue
		}
		host := "127.0.0.1"
		if len(ips) > 0 {
			host = ips[0].String()
		}
		return requestSelf(ctx, p.ln, net.JoinHostPort(host, strconv.Itoa(int(p.number))), cert)
	}
	return errors.New("the kubelet API has no TCP port")
}

// requestSelf makes a request to one address. It reserves a connection in the listener, so that the test does not fail because
// of too many other connections.
func requestSelf(ctx context.Context, ln *connlimit.Listener, address string, cert *tls.Certificate) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // it connects to itself
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || ln == nil {
			return conn, err
		}
		return &selfConn{conn, ln.Reserve(conn.LocalAddr())}, nil
	}
	client := http.Client{
		Transport: &http.Transport{DialContext: dial, TLSClientConfig: c, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if cert != nil && resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s does not accept the node's own certificate: clientCAFile does not contain the CA that signed it", address)
	}
	return nil
}

// A selfConn is the client's end of a connection from the agent to its own port. Close also ends the connection's
// reservation in the listener.
type selfConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *selfConn) Close() error {
	c.release()
	return c.Conn.Close()
}
