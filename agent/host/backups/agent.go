package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

var socketName = filepath.Base(api.DefaultSocket)

// errNoAgent means that no agent listens at the socket.
var errNoAgent = errors.New("no agent runs")

const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 5 * time.Minute // the agent copies its database first
	idleTimeout   = time.Minute     // without a byte
	maxMessage    = 64 << 10
)

// askAgent returns the archive that an agent makes.
func askAgent(ctx context.Context, socket string, o *options) (io.ReadCloser, error) {
	query := url.Values{"include": o.include}
	if o.bundles {
		query.Set("bundles", "")
	}
	u := url.URL{Scheme: "http", Host: "islet", Path: api.PathBackup, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, err
			}
			return idleConn{conn}, nil
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxMessage, ResponseHeaderTimeout: headerTimeout,
	}}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w at %s: %w", errNoAgent, socket, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("no permission to connect to the agent at %s: use sudo", socket)
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusOK:
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("the agent at %s is an earlier version, which makes no backups: restart it with this version", socket)
	}
	return nil, errors.New(printable.Line(string(text)))
}

// An idleConn fails if nothing arrives for a while after the header.
type idleConn struct{ net.Conn }

// Read implements net.Conn.
func (c idleConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(headerTimeout + idleTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}
