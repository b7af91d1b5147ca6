package call

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"
)

// handshakeTimeout is the timeout of the TLS handshake. It also applies to calls without a timeout.
const handshakeTimeout = 10 * time.Second

// An exchange is a RoundTripper that opens one connection for one HTTP/1.1 request and its response. It
// replaces http.Transport, which starts goroutines for a connection pool and logs data that a server sends
// without a request. With HTTP/2, http.Transport logs each unexpected frame, so that a pod could fill the
// log.
type exchange struct {
	http2 bool // use HTTP/2 for URLs with the scheme http
}

// RoundTrip implements http.RoundTripper.
func (e exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if e.http2 && req.URL.Scheme == "http" && req.URL.Hostname() != "" {
		return callByHTTP2(req)
	}
	conn, err := dialURL(ctx, req.URL)
	if err != nil && wantsHTTP2(err) {
		return callByHTTP2(req)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	closing := func() error { stop(); return conn.Close() }
	resp, err := sendRequest(conn, req)
	// A response that arrives after ctx has ended does not count. The server may have responded only because it
	// noticed the cancellation before the connection was closed.
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		closing()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	resp.Body = &body{resp.Body, ctx, closing}
	return resp, nil
}

// dialURL dials the host of a URL.
func dialURL(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	switch {
	case port == "":
		return nil, fmt.Errorf("unsupported protocol scheme %q", u.Scheme)
	case u.Hostname() == "": // package net would dial this machine
		return nil, errors.New("no Host in request URL")
	case u.Port() != "":
		port = u.Port()
	}
	conn, err := newDialer().DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil || u.Scheme == "http" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	ctx, stop := context.WithTimeout(ctx, handshakeTimeout)
	defer stop()
	if err = secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if odd, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(odd.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, err
	}
	return secure, nil
}

// bufferSize is large enough for most requests and response headers.
const bufferSize = 1 << 10

// sendRequest sends a request and reads the response up to its body.
func sendRequest(conn net.Conn, req *http.Request) (*http.Response, error) {
	single := *req
	single.Close = true
	out := bufio.NewWriterSize(conn, bufferSize)
	if err := single.Write(out); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	limit := &io.LimitedReader{R: conn, N: maxHeader}
	in := bufio.NewReaderSize(limit, bufferSize)
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(in, req)
		switch {
		case err != nil && limit.N == 0:
			return nil, fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", maxHeader)
		case err != nil:
			return nil, fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
		case resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols:
			continue // an informational response; the final one follows
		}
		limit.N = math.MaxInt64
		return resp, nil
	}
}

// A body is the body of a response. Closing it also closes the connection.
type body struct {
	io.ReadCloser
	ctx   context.Context // context of the request; its error replaces the error of a failed read
	close func() error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && b.ctx.Err() != nil {
		err = b.ctx.Err()
	}
	return n, err
}

func (b *body) Close() error { return b.close() }
