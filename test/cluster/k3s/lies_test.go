package k3s

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/islet-edge/islet/test/machine"
)

// TestLies checks that a client sees the lies as their comments say.
func TestLies(t *testing.T) {
	t.Parallel()
	c, first := Start(t)
	s := first.Another(t, c)
	a := newAgent(t, c, s, s.NodeToken())
	const path = "/cacerts"
	get := func(limit int64) (status int, body []byte, err error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: a.m.Dial, TLSClientConfig: a.tls()}
		defer transport.CloseIdleConnections()
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return 0, nil, err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(io.LimitReader(answer.Body, limit))
		return answer.StatusCode, b, err
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 64)

	s.Instead(path, Text(text))
	if status, b, err := get(1 << 20); status != http.StatusOK || !bytes.Equal(b, text) || err != nil {
		t.Errorf("Text: %d, %d bytes, %v", status, len(b), err)
	}
	s.Instead(path, Status(http.StatusServiceUnavailable, time.Minute))
	if status, b, err := get(1 << 20); status != http.StatusServiceUnavailable || !strings.Contains(string(b), `"Failure"`) || err != nil {
		t.Errorf("Status: %d, %s, %v", status, b, err)
	}
	s.Instead(path, Truncated(text, 100))
	if _, b, err := get(1 << 20); len(b) != 100 || err == nil {
		t.Errorf("Truncated: %d bytes, %v", len(b), err)
	}
	s.Instead(path, Endless(text))
	if _, b, err := get(64 << 20); len(b) != 64<<20 || err != nil {
		t.Errorf("Endless: %d bytes, %v", len(b), err)
	}
	s.Instead(path, HangAfter(text))
	if _, b, err := get(int64(len(text))); !bytes.Equal(b, text) || err != nil {
		t.Errorf("HangAfter: %d bytes, %v", len(b), err)
	}
	s.Instead(path, Redirect("https://192.0.2.1/cacerts"))
	if status, _, err := get(1 << 20); status != http.StatusFound || err != nil {
		t.Errorf("Redirect: %d, %v", status, err)
	}
	s.Instead(path, nil)
	if status, b, err := get(1 << 20); status != http.StatusOK || !bytes.Equal(b, s.PKI().ServerCA()) || err != nil {
		t.Errorf("after the lies: %d, %s, %v", status, b, err)
	}

	const config = "/v1-k3s/config"
	for range cap(s.reads) {
		s.reads <- struct{}{}
	}
	a.want(http.StatusTooManyRequests, http.MethodGet, config, nil)
	for range cap(s.reads) {
		<-s.reads
	}
	a.want(http.StatusOK, http.MethodGet, config, nil)
	s.setReady(false)
	a.wantRefused(http.StatusServiceUnavailable, http.MethodGet, "/v1-k3s/readyz")
	a.wantRefused(http.StatusServiceUnavailable, http.MethodGet, "/v1-k3s/client-kubelet.crt")
	s.setReady(true)

	foreign, err := NewAuthority("k3s-server")
	if err != nil {
		t.Fatal(err)
	}
	s.Misissue(func(i *Issue) { i.Authority, i.Subject.Name, i.Subject.Validity = foreign, "another", time.Minute })
	got := a.request("/v1-k3s/serving-kubelet.crt").Leaf
	if got.Subject.CommonName != "another" || got.CheckSignatureFrom(foreign.Cert) != nil || time.Until(got.NotAfter) > time.Minute {
		t.Errorf("the certificate is for %v, by %v, until %v", got.Subject, got.Issuer, got.NotAfter)
	}
	s.Misissue(nil)

	raw := Frame(1, 2, FrameConnect, []byte("tcp/127.0.0.1:22"))
	s.Instead("/v1-k3s/connect", RawTunnel(func(conn *websocket.Conn) { _ = conn.WriteMessage(websocket.BinaryMessage, raw) }))
	ws := &websocket.Dialer{TLSClientConfig: a.tls(), NetDialContext: a.m.Dial}
	conn, answer, err := ws.DialContext(t.Context(), strings.Replace(s.URL(), "https", "wss", 1)+"/v1-k3s/connect", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer.Body.Close()
	if _, b, err := conn.ReadMessage(); err != nil || !bytes.Equal(b, raw) {
		t.Errorf("the message is %q, %v", b, err)
	}

	if err := s.ServeCertificateOf(foreign); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(1); !isUnknownAuthority(err) {
		t.Errorf("with a certificate of another CA: %v", err)
	}
}

func isUnknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// TestRemovedNode checks that a password is free again after the Node was deleted, and that its certificate is not renewed then.
func TestRemovedNode(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	a := newAgent(t, c, s, s.BootstrapToken(bootstrapToken))
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", a.name, "--ignore-not-found") })
	token := a.token
	a.client = a.request("/v1-k3s/client-kubelet.crt")
	a.want(http.StatusCreated, http.MethodPost, "/api/v1/nodes",
		[]byte(`{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "`+a.name+`"}}`), isJSON)
	a.request("/v1-k3s/client-kubelet.crt") // with its certificate
	a.m.Await("the Secret to belong to the Node", func() bool { return ownsPassword(t, c, a.name) })
	c.Kubectl(t, "delete", "node", a.name)
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, "/v1-k3s/client-kubelet.crt")
	a.client.Certificate, a.token, a.password = nil, token, "another"
	a.m.Await("the password to be free", func() bool {
		status, _ := a.do(http.MethodGet, "/v1-k3s/client-kubelet.crt", nil)
		return status == http.StatusOK
	})
}
