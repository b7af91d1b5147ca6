package k3s

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"github.com/rancher/remotedialer"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// An agent joins as k3s' agent does. k3s pkg/agent/config/config.go; pkg/clientaccess/token.go.
type agent struct {
	t        *testing.T
	m        *machine.Machine
	s        *Server
	name     string
	addr     string
	password string
	token    string // of the request: user:password or a bootstrap token
	roots    *x509.CertPool
	client   tls.Certificate // of client-kubelet.crt; empty before the node has joined
}

// newAgent returns an agent on a machine of its own, which has compared the CA of /cacerts with the token.
func newAgent(t *testing.T, c *cluster.Cluster, s *Server, token string) *agent {
	t.Helper()
	m := machine.New(t, cluster.Name(t))
	link := c.Plug(m)
	m.Boot()
	a := &agent{t: t, m: m, s: s, name: m.Name, addr: link.Addr, password: "0123456789abcdef0123456789abcdef"}
	hash, rest, ok := strings.Cut(strings.TrimPrefix(token, "K10"), "::")
	if !ok {
		t.Fatalf("the token is %q", token)
	}
	a.token = rest
	status, ca := a.do(http.MethodGet, "/cacerts", nil, func(r *http.Request) { r.Header.Del("Authorization") })
	if digest := sha256.Sum256(ca); status != http.StatusOK || hex.EncodeToString(digest[:]) != hash {
		t.Fatalf("/cacerts: %d, hash %x, want %s", status, digest, hash)
	}
	a.roots = x509.NewCertPool()
	a.roots.AppendCertsFromPEM(ca)
	return a
}

// tls returns the TLS configuration of a client. Before the CA is known, the server is not verified.
func (a *agent) tls() *tls.Config {
	c := &tls.Config{RootCAs: a.roots, InsecureSkipVerify: a.roots == nil}
	if a.client.Certificate != nil {
		c.Certificates = []tls.Certificate{a.client}
	}
	return c
}

// do sends a request with the token, or with the node's certificate if there is one, and returns the status and the body.
func (a *agent) do(method, path string, body []byte, change ...func(*http.Request)) (int, []byte) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.s.URL()+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if user, password, basic := strings.Cut(a.token, ":"); a.client.Certificate == nil && basic {
		r.SetBasicAuth(user, password)
	} else if a.client.Certificate == nil {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	r.Header.Set("k3s-Node-Name", a.name)
	r.Header.Set("k3s-Node-Password", a.password)
	r.Header.Set("k3s-Node-IP", a.addr)
	for _, f := range change {
		f(r)
	}
	transport := &http.Transport{DialContext: a.m.Dial, TLSClientConfig: a.tls(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: machine.WaitTimeout}).Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer.StatusCode, b
}

// want fails the test unless a request has a status. It returns the body.
func (a *agent) want(status int, method, path string, body []byte, change ...func(*http.Request)) []byte {
	a.t.Helper()
	got, b := a.do(method, path, body, change...)
	if got != status {
		a.t.Errorf("%s %s: %d, want %d\n%s", method, path, got, status, b)
	}
	return b
}

// wantRefused does the same for an error, whose body must be a Status of Kubernetes.
func (a *agent) wantRefused(status int, method, path string, change ...func(*http.Request)) {
	a.t.Helper()
	b := a.want(status, method, path, nil, change...)
	var answer struct {
		Kind, Status string
		Code         int
	}
	if err := json.Unmarshal(b, &answer); err != nil || answer.Kind != "Status" || answer.Status != "Failure" || answer.Code != status {
		a.t.Errorf("%s %s is refused with %s", method, path, b)
	}
}

// request asks for a certificate of an own key. It returns the certificate with the CA behind it.
func (a *agent) request(path string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		a.t.Fatal(err)
	}
	c := tls.Certificate{PrivateKey: key}
	for rest := a.want(http.StatusOK, http.MethodPost, path, csr); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			a.t.Fatalf("%s has answered with a %s", path, b.Type)
		}
		c.Certificate = append(c.Certificate, b.Bytes)
	}
	if len(c.Certificate) == 0 {
		a.t.Fatalf("%s has answered without a certificate", path)
	}
	if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
		a.t.Fatal(err)
	}
	return c
}

// connect opens the tunnel with the client of remotedialer, and waits until the server knows it. It ends with the test. The agent permits
// only the kubelet's port at the loopback address. k3s pkg/agent/tunnel/tunnel.go, connect and authorized.
func (a *agent) connect() {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, connected := make(chan error, 1), make(chan struct{})
	ws := &websocket.Dialer{TLSClientConfig: a.tls(), NetDialContext: a.m.Dial}
	permit := func(network, address string) bool { return network == "tcp" && address == "127.0.0.1:10250" }
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return a.m.Dial(ctx, network, "127.0.0.1:10250")
	}
	go func() {
		url := strings.Replace(a.s.URL(), "https", "wss", 1) + "/v1-k3s/connect"
		ended <- remotedialer.ConnectToProxyWithDialer(ctx, url, nil, permit, ws, dial,
			func(context.Context, *remotedialer.Session) error { close(connected); return nil })
	}()
	a.t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-connected:
	case err := <-ended:
		a.t.Fatalf("the tunnel: %v", err)
	}
	a.m.Await("the tunnel of "+a.name, func() bool { return a.s.Connected(a.name) })
}

// serve runs a kubelet that only answers requests for logs, with a line that contains the request's path. It serves at the loopback address
// and requires a client certificate that the given CA has signed.
func (a *agent) serve(cert tls.Certificate, clients []byte) {
	a.t.Helper()
	var l net.Listener
	err := machine.InNetwork(a.m.Pid(), func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:10250"); return err })
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(clients)
	srv := &http.Server{
		ErrorLog:  log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u := r.TLS.PeerCertificates[0].Subject
			fmt.Fprintf(w, "%s for %s of %s\n", r.URL.Path, u.CommonName, u.Organization)
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(l, "", "") }()
	a.t.Cleanup(func() { srv.Close(); <-ended })
}
