package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	dialTime  = 30 * time.Second // timeout for establishing a streaming connection
	maxAnswer = 64 << 10         // maximum size of the response to the upgrade request, in bytes
)

// dialStream connects to a streaming URL of the runtime. The host of the URL must be this machine, so
// that a forged URL cannot make the agent connect to other machines.
func dialStream(ctx context.Context, target, protocol string) (httpstream.Connection, error) {
	u, err := parseLocalURL(target)
	if err != nil {
		return nil, err
	}
	dialCtx, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(dialCtx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime's streams: %w", err)
	}
	if u.Scheme == "https" { // with a self-signed certificate
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the server is on this machine
	}
	deadline, _ := dialCtx.Deadline()
	conn.SetDeadline(deadline)
	cut := context.AfterFunc(ctx, func() { conn.Close() })
	defer cut()
	up, err := upgradeToSPDY(conn, u, protocol)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.SetDeadline(time.Time{})
	return spdy.NewClientConnection(up)
}

// parseLocalURL parses a URL. It returns an error if the host is not this machine.
func parseLocalURL(target string) (*url.URL, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.User != nil {
		return nil, fmt.Errorf("the container runtime returned %.200q for its streams: want http://ADDRESS:PORT/...", target)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return u, nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && ip != nil && n.IP.Equal(ip) {
			return u, nil
		}
	}
	return nil, fmt.Errorf("the container runtime returned %.200q for its streams, which is not on this machine: "+
		"configure the runtime to serve streams on the loopback address",
		target)
}

// upgradeToSPDY requests SPDY on an HTTP connection.
func upgradeToSPDY(conn net.Conn, u *url.URL, protocol string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {protocol},
	}}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("request the runtime's streams: %w", err)
	}
	in := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, fmt.Errorf("request the runtime's streams: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the container runtime responded with %s: %s", resp.Status, body)
	}
	if got := resp.Header.Get(httpstream.HeaderProtocolVersion); got != protocol {
		return nil, fmt.Errorf("the container runtime uses %.100q and not %s", got, protocol)
	}
	buffered, _ := in.Peek(in.Buffered())
	return &readAhead{conn, io.MultiReader(bytes.NewReader(bytes.Clone(buffered)), conn)}, nil
}

// A readAhead is a connection with a reader that first returns buffered bytes.
type readAhead struct {
	net.Conn
	from io.Reader
}

func (c *readAhead) Read(b []byte) (int, error) { return c.from.Read(b) }
