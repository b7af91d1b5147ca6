package node

import (
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// webSockets checks that clients with an old WebSocket library run a command on the node's port and through the API server. Such a client
// sends an Origin header. It sends an old subprotocol or none.
func (k kubectl) webSockets(t *testing.T, n *cluster.Node) {
	admin := k.Config()
	token := mayOne(t, k.Cluster, n, k.ns, "proxy")
	own := &rest.Config{Host: "https://" + n.Addr + ":10250", BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	command := "?command=/podtool&command=cat&command=/etc/hostname&stdout=true&stderr=true&output=1&error=1&container=c"
	for _, protocol := range []string{"", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "v5.channel.k8s.io"} {
		for what, out := range map[string]string{
			"through the API server": k.session(t, admin, "/api/v1/namespaces/"+k.ns+"/pods/web/exec"+command, protocol),
			"on the node's port":     k.session(t, own, "/exec/"+k.ns+"/web/c"+command, protocol),
		} {
			if out != "web\n" {
				t.Errorf("subprotocol %q %s: the command returned %q", protocol, what, out)
			}
		}
	}
}

// session runs a command over a WebSocket and returns the data of channel 1.
func (k kubectl) session(t *testing.T, to *rest.Config, path, protocol string) string {
	t.Helper()
	u, err := url.Parse(to.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := rest.TLSConfigFor(to)
	if err != nil {
		t.Fatal(err)
	}
	secure.NextProtos = []string{"http/1.1"}
	if secure.ServerName == "" {
		secure.ServerName = u.Hostname()
	}
	raw, err := k.Dial(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	u.Scheme = "wss"
	c, err := websocket.NewConfig(u.String(), "http://elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	if protocol != "" {
		c.Protocol = []string{protocol}
	}
	if to.BearerToken != "" {
		c.Header.Set("Authorization", "Bearer "+to.BearerToken)
	}
	conn, err := websocket.NewClient(c, tls.Client(raw, secure))
	if err != nil {
		return "handshake: " + err.Error()
	}
	defer conn.Close()
	var out strings.Builder
	for {
		var m []byte
		if err := websocket.Message.Receive(conn, &m); err == io.EOF {
			return out.String()
		} else if err != nil {
			return out.String() + "; then " + err.Error()
		}
		switch {
		case len(m) == 0:
		case m[0] == 1:
			out.Write(m[1:])
		case m[0] == '1':
			plain, err := base64.StdEncoding.DecodeString(string(m[1:]))
			if err != nil {
				return out.String() + "; then " + err.Error()
			}
			out.Write(plain)
		}
	}
}
