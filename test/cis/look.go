package cis

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// Inspect sets the fields that describe a running node. It reads the settings from the node's socket. It connects to
// the kubelet API with dial, which must use the node's network.
func (n *Node) Inspect(t testing.TB, socket string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	t.Helper()
	local := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	answer, err := local.Get("http://islet/islet/v1/settings")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	settings := struct{ Kubelet *Kubelet }{&n.Kubelet}
	if err := json.NewDecoder(answer.Body).Decode(&settings); err != nil || n.Kubelet.Port == 0 {
		t.Fatalf("settings: %v, %+v", err, n.Kubelet)
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(n.Kubelet.Port))
	if c, err := dial(t.Context(), "tcp", address); n.Kubeconfig == "" && errors.Is(err, syscall.ECONNREFUSED) {
		return // without an authority for clients, the kubelet API has no port
	} else if err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	trusting := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the body is not needed
	api := http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: trusting, DisableKeepAlives: true}}
	n.Request = func(path string) (int, error) {
		a, err := api.Get("https://" + address + path)
		if err != nil {
			return 0, err
		}
		return a.StatusCode, a.Body.Close()
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		c, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		one := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			CipherSuites: []uint16{s.ID}}) //nolint:gosec // as above
		if one.Handshake() == nil {
			n.Ciphers = append(n.Ciphers, s.Name)
		}
		c.Close()
	}
}

// CheckAll reports a test failure for each recommendation with which the node does not comply.
func (n *Node) CheckAll(t testing.TB) {
	t.Helper()
	for _, c := range Table() {
		if err := c.Check(n); err != nil {
			t.Errorf("%s, %s: %v", c.ID, c.Text, err)
		}
	}
}
