package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// numbered returns the output of podtool lines.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%099d\n", i)
	}
	return b.Bytes()
}

// long reports whether ISLET_TEST_LONG is set.
var long = os.Getenv("ISLET_TEST_LONG") != ""

// A pace wraps a reader to simulate a slow client.
type pace func(io.Reader) io.Reader

// A slowReader reads 3 MiB per second, or 600 KiB per second in the long test.
type slowReader struct{ r io.Reader }

func slow(r io.Reader) io.Reader { return slowReader{r} }

func (s slowReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b[:min(len(b), 32<<10)])
	rate := time.Duration(3 << 20)
	if long {
		rate = 600 << 10
	}
	<-time.After(time.Duration(n) * time.Second / rate)
	return n, err
}

// A stopping reader pauses for three seconds after the first read.
type stopping struct {
	r    io.Reader
	once sync.Once
}

func stops(r io.Reader) io.Reader { return &stopping{r: r} }

func (s *stopping) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.once.Do(func() { <-time.After(3 * time.Second) })
	return n, err
}

// readThrough returns an administrator's client configuration. Its connections read from the API server as slowly as the given pace. The
// receive buffer of the connection is small.
func readThrough(t *testing.T, c *cluster.Cluster, read pace) *rest.Config {
	t.Helper()
	config := c.Config()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	config.Host, config.Dial, config.TLSClientConfig.ServerName = "https://"+ln.Addr().String(), nil, u.Hostname()
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := c.Dial(t.Context(), "tcp", u.Host)
				if err != nil {
					return
				}
				defer server.Close()
				server.(*net.TCPConn).SetReadBuffer(64 << 10)
				go func() {
					io.Copy(server, client)
					server.(*net.TCPConn).CloseWrite()
				}()
				io.Copy(client, read(server))
			}()
		}
	}()
	return config
}

// A transport is a protocol for exec and attach through the API server.
type transport struct {
	name string
	make func(config *rest.Config, u *url.URL) (remotecommand.Executor, error)
}

var transports = []transport{
	{"SPDY", func(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(config, "POST", u)
	}},
	{"WebSocket", func(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(config, "GET", u.String())
	}},
}

// oldWebSocket uses a subprotocol without a message for the end of standard input.
var oldWebSocket = transport{"old WebSocket", func(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutorForProtocols(config, "GET", u.String(), "v4.channel.k8s.io")
}}

// podURL returns the URL of a pod's subresource.
func podURL(config *rest.Config, ns, name, what string, q url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: strings.TrimPrefix(config.Host, "https://"), RawQuery: q.Encode(),
		Path: fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/%s", ns, name, what)}
}

// command runs a command in a pod, or attaches to the container if there are no arguments.
func command(ctx context.Context, by transport, config *rest.Config, ns, name string, stdin io.Reader, args ...string) (out []byte,
	code int, err error) {
	what, q := "exec", url.Values{"container": {"c"}, "stdout": {"true"}, "stderr": {"true"}, "command": args}
	if len(args) == 0 {
		what = "attach"
	}
	if stdin != nil {
		q.Set("stdin", "true")
	}
	x, err := by.make(config, podURL(config, ns, name, what, q))
	if err != nil {
		return nil, 0, err
	}
	var b, errs bytes.Buffer
	err = x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &b, Stderr: &errs})
	if errs.Len() > 0 {
		return b.Bytes(), 0, fmt.Errorf("%w, standard error: %q", err, errs.Bytes())
	}
	if exit := (exec.CodeExitError{}); errors.As(err, &exit) {
		return b.Bytes(), exit.Code, nil
	}
	return b.Bytes(), 0, err
}
