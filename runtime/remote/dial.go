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
	dialTime  = 30 * time.Second // until the streaming connection is established
	maxAnswer = 64 << 10         // size of the response to the upgrade request, in bytes
)

// dial connects to the runtime's streaming URL. The host of the URL must be this machine. Otherwise
// someone who can influence the URL could make the agent connect to machines that they cannot reach
// themselves.
func dial(ctx context.Context, target, protocol string) (httpstream.Connection, error) {
	u, err := local(target)
	if err != nil {
		return nil, err
	}
	late, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(late, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime's streams: %w", err)
	}
	if u.Scheme == "https" { // the runtime's certificate is self-signed
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the server is on this machine
	}
	deadline, _ := late.Deadline()
	conn.SetDeadline(deadline)
	cut := context.AfterFunc(ctx, func() { conn.Close() })
	defer cut()
	up, err := upgrade(conn, u, protocol)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.SetDeadline(time.Time{})
	return spdy.NewClientConnection(up)
}

// local parses a URL and returns an error if its host is not this machine.
func local(target string) (*url.URL, error) {
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
		"have it serve them on loopback",
		target)
}

// upgrade upgrades an HTTP connection to SPDY.
func upgrade(conn net.Conn, u *url.URL, protocol string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {protocol},
	}}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("request the runtime's streams: %w", err)
	}
	answer := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	resp, err := http.ReadResponse(answer, req)
	if err != nil {
		return nil, fmt.Errorf("request the runtime's streams: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the container runtime responded with %s: %s", resp.Status, said)
	}
	if got := resp.Header.Get(httpstream.HeaderProtocolVersion); got != protocol {
		return nil, fmt.Errorf("the container runtime uses %.100q and not %s", got, protocol)
	}
	ahead, _ := answer.Peek(answer.Buffered())
	return &readAhead{conn, io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn)}, nil
}

// A readAhead is a connection from which some bytes were already read.
type readAhead struct {
	net.Conn
	from io.Reader
}

func (c *readAhead) Read(b []byte) (int, error) { return c.from.Read(b) }
