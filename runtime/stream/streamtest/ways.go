package streamtest

import (
	"context"
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/rest"
)

// A Client connects to Config.Host, which begins with https:// or http://.
type Client struct {
	Config *rest.Config
	TLS    *tls.Config // for clients that do not use client-go
}

// A Way is a combination of a client and a protocol version.
type Way struct {
	Name string
	// Get opens a session at path and returns the received bytes and the exit code of the command.
	// It returns an error if the session did not end properly.
	Get func(ctx context.Context, c *Client, path string) (out []byte, code int, err error)
	// Coded reports whether the client receives all output even if the command fails.
	Coded bool
	// Blind reports whether the client cannot distinguish a broken connection from the end of the
	// output.
	Blind bool
}

// Channels returns the WebSocket subprotocols that a kubelet supports.
func Channels() []string {
	return []string{"", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"}
}

// Commands returns the clients for exec and attach: SPDY with all protocol versions, WebSocket with
// the subprotocols of Channels, the subprotocols in more, and client-go's WebSocket client with the given
// version of the subprotocol.
func Commands(version string, more ...string) (all []Way) {
	get := func(ctx context.Context, c *Client, path string) ([]byte, int, error) {
		return c.webSocket(ctx, path, version)
	}
	all = append(all, Way{Name: "client-go's WebSocket", Coded: true, Get: get})
	for _, p := range append(Channels(), more...) {
		get := func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			return c.commandChannels(path, p)
		}
		all = append(all, Way{Name: "WebSocket " + p, Coded: true, Get: get})
	}
	for _, p := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"} {
		get := func(ctx context.Context, c *Client, path string) ([]byte, int, error) { return c.runSPDY(ctx, path, p) }
		all = append(all, Way{Name: "SPDY " + p, Coded: p[0] == 'v', Blind: true, Get: get})
	}
	return all
}

// Ports returns the clients for port-forward to a port.
func Ports(port int) (all []Way) {
	for _, p := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		get := func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			return c.portChannels(path, p, port)
		}
		all = append(all, Way{Name: "WebSocket " + p, Blind: true, Get: get})
	}
	for name, dialer := range map[string]portDialer{"SPDY": spdyDialer, "a tunnel": tunnelDialer} {
		get := func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			out, err := c.readFromPort(path, fmt.Sprint(port), dialer)
			return out, 0, err
		}
		all = append(all, Way{Name: name, Blind: true, Get: get})
	}
	return all
}
