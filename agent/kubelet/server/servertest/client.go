package servertest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server"
)

// Client returns a client of the local socket.
func (n *Node) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}, Timeout: 30 * time.Second}
}

// Do sends a request to the local socket, and returns the code and the body of the response.
func (n *Node) Do(t testing.TB, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://islet"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(data)
}

// Variant returns a server with the configuration of the node's server, modified by the function change.
func (n *Node) Variant(t testing.TB, change func(*server.Config)) *server.Server {
	t.Helper()
	c := n.Server.Config
	change(&c)
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
