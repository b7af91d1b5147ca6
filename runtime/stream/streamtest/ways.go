package streamtest

import (
	"context"
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/rest"
)

// A Client is who connects: to Config.Host, which begins with https:// or http://.
type Client struct {
	Config *rest.Config
	TLS    *tls.Config // the same, for clients that are not client-go's
}

// A Way is a client with a version of a protocol.
type Way struct {
	Name string
	// Get returns all bytes that come from a path and, once the server has ended them in order,
	// the code of the command.
	Get func(ctx context.Context, c *Client, path string) (out []byte, code int, err error)
	// Coded says that the client waits for the output of a command that fails.
	Coded bool
	// Blind says that the client cannot tell a connection that broke off from the end of the output.
	Blind bool
}

// Channels are the versions of the protocol of a WebSocket that a kubelet serves.
func Channels() []string {
	return []string{"", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"}
}

// Commands are the ways of exec and attach: SPDY of all versions, WebSockets of Channels and more, and
// client-go's WebSocket of that version.
func Commands(version string, more ...string) (all []Way) {
	all = append(all, Way{Name: "client-go's WebSocket", Coded: true, Get: func(ctx context.Context, c *Client, path string) ([]byte, int, error) {
		return c.webSocket(ctx, path, version)
	}})
	for _, p := range append(Channels(), more...) {
		all = append(all, Way{Name: "WebSocket " + p, Coded: true, Get: func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			return c.commandChannels(path, p)
		}})
	}
	for _, p := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"} {
		all = append(all, Way{Name: "SPDY " + p, Coded: p[0] == 'v', Blind: true, Get: func(ctx context.Context, c *Client, path string) ([]byte, int, error) {
			return c.spdy(ctx, path, p)
		}})
	}
	return all
}

// Ports are the ways of port-forward to one port.
func Ports(port int) (all []Way) {
	for _, p := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		all = append(all, Way{Name: "WebSocket " + p, Blind: true, Get: func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			return c.portChannels(path, p, port)
		}})
	}
	for name, dialer := range map[string]portDialer{"SPDY": spdyDialer, "a tunnel": tunnelDialer} {
		all = append(all, Way{Name: name, Blind: true, Get: func(_ context.Context, c *Client, path string) ([]byte, int, error) {
			out, err := c.port(path, fmt.Sprint(port), dialer)
			return out, 0, err
		}})
	}
	return all
}
