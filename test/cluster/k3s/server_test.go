package k3s

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServer checks the server with an agent that follows k3s' sources: it joins, opens the tunnel of the real remotedialer, and kubectl
// logs reaches its kubelet only through the tunnel.
func TestServer(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	a := newAgent(t, c, s, s.NodeToken())
	t.Cleanup(func() { c.Kubectl(t, "delete", "node", a.name, "--ignore-not-found") })

	var config struct {
		ClusterDNS         net.IP
		ClusterDomain      string
		ClusterIPRange     *net.IPNet
		EgressSelectorMode string
		HTTPSPort          int
		SupervisorPort     int
	}
	if err := json.Unmarshal(a.want(http.StatusOK, http.MethodGet, "/v1-k3s/config", nil), &config); err != nil || config.HTTPSPort != 6443 ||
		config.SupervisorPort != 6443 || config.EgressSelectorMode != "agent" || config.ClusterIPRange.String() != "10.100.0.0/16" {
		t.Errorf("the configuration is %+v, %v", config, err)
	}
	clientCA := a.want(http.StatusOK, http.MethodGet, "/v1-k3s/client-ca.crt", nil)
	if b := a.want(http.StatusOK, http.MethodGet, "/v1-k3s/server-ca.crt", nil); string(b) != string(s.PKI().ServerCA()) {
		t.Errorf("the server's CA is %s", b)
	}

	serving := a.request("/v1-k3s/serving-kubelet.crt")
	wantSubject(t, serving.Leaf, a.name, "", s.pki.server)
	if got, want := serving.Leaf.IPAddresses, "[127.0.0.1 "+a.addr+"]"; fmt.Sprint(got) != want {
		t.Errorf("the certificate is for %v, want %s", got, want)
	}
	client := a.request("/v1-k3s/client-kubelet.crt")
	wantSubject(t, client.Leaf, "system:node:"+a.name, "system:nodes", s.pki.client)
	wantSubject(t, a.request("/v1-k3s/client-k3s-controller.crt").Leaf, "system:k3s-controller", "", s.pki.client)
	secret, err := c.Admin().CoreV1().Secrets("kube-system").Get(t.Context(), a.name+".node-password.k3s", metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(string(secret.Data["hash"]), "$1:") || strings.Count(string(secret.Data["hash"]), ":") != 5 {
		t.Errorf("the password's Secret is %v, %v", secret, err)
	}

	a.client = client
	a.want(http.StatusCreated, http.MethodPost, "/api/v1/nodes", fmt.Appendf(nil, `{"kind": "Node", "apiVersion": "v1",
"metadata": {"name": %q, "labels": {"kubernetes.io/hostname": %[1]q}}}`, a.name), isJSON)
	a.want(http.StatusOK, http.MethodPatch, "/api/v1/nodes/"+a.name+"/status", fmt.Appendf(nil, `{"status": {"addresses": [{"type": "InternalIP",
"address": %q}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}`, a.addr), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	})
	a.serve(serving, clientCA)
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": %q},
"spec": {"nodeName": %q, "containers": [{"name": "c", "image": "none"}]}}`, ns, a.name))
	a.m.Await("the Secret to belong to the Node", func() bool { return ownsPassword(t, c, a.name) })
	if out, err := c.TryKubectl("", "-n", ns, "logs", "p"); err == nil {
		t.Errorf("kubectl logs works without a tunnel: %s", out)
	}
	a.connect()
	if got, want := c.Kubectl(t, "-n", ns, "logs", "p"), "/containerLogs/"+ns+"/p/c for system:apiserver of [system:masters]\n"; got != want {
		t.Errorf("kubectl logs has written %q, want %q", got, want)
	}
}

// ownsPassword reports whether a Node is the owner of its password's Secret.
func ownsPassword(t *testing.T, c *cluster.Cluster, node string) bool {
	secret, err := c.Admin().CoreV1().Secrets("kube-system").Get(t.Context(), node+".node-password.k3s", metav1.GetOptions{})
	return err == nil && len(secret.OwnerReferences) == 1 && secret.OwnerReferences[0].Name == node
}

func isJSON(r *http.Request) { r.Header.Set("Content-Type", "application/json") }

// wantSubject checks a certificate: it is valid since the CA is and for a year from now.
func wantSubject(t *testing.T, got *x509.Certificate, name, group string, ca *Authority) {
	t.Helper()
	if got.Subject.CommonName != name || strings.Join(got.Subject.Organization, ",") != group || got.CheckSignatureFrom(ca.Cert) != nil {
		t.Errorf("the certificate of %s is for %v, signed by %v", name, got.Subject, got.Issuer)
	}
	if !got.NotBefore.Equal(ca.Cert.NotBefore) || time.Until(got.NotAfter) > year || time.Until(got.NotAfter) < year-time.Hour {
		t.Errorf("the certificate of %s is valid from %v to %v", name, got.NotBefore, got.NotAfter)
	}
}

// TestStatus checks the status of refused requests. The rows are those of k3s' own pkg/server/handlers/handlers_test.go and of
// pkg/nodepassword/validate.go.
func TestStatus(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	a := newAgent(t, c, s, s.NodeToken())
	const serving = "/v1-k3s/serving-kubelet.crt"
	anonymous := func(r *http.Request) { r.Header.Del("Authorization") }
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	del := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	basic := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}

	a.want(http.StatusOK, http.MethodGet, "/ping", nil, anonymous)
	a.want(http.StatusOK, http.MethodGet, "/v1-k3s/readyz", nil)
	if b := a.want(http.StatusOK, http.MethodGet, "/v1-k3s/apiservers", nil); strings.TrimSpace(string(b)) != `["`+Address+`"]` {
		t.Errorf("the API servers are %s", b)
	}
	a.wantRefused(http.StatusForbidden, http.MethodGet, serving, anonymous)
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, serving, basic("node", "wrong"))
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, serving, set("Authorization", "Bearer k3stok.fedcba9876543210"))
	a.wantRefused(http.StatusForbidden, http.MethodGet, serving, basic("server", s.c.Passwords.Server))
	a.wantRefused(http.StatusForbidden, http.MethodGet, "/v1-k3s/connect")
	a.wantRefused(http.StatusBadRequest, http.MethodGet, serving, del("k3s-Node-Name"))
	a.wantRefused(http.StatusBadRequest, http.MethodGet, serving, del("k3s-Node-Password"))
	a.wantRefused(http.StatusInternalServerError, http.MethodGet, serving, set("k3s-Node-IP", "here"))
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, "/api/v1/nodes", anonymous)
	a.wantRefused(http.StatusForbidden, http.MethodGet, serving, set("k3s-Node-Password", "another")) // a row above has stored one
	if b := a.want(http.StatusOK, http.MethodGet, serving, nil); !strings.Contains(string(b), "EC PRIVATE KEY") {
		t.Errorf("a request without a CSR is answered with %s", b)
	}
	if b := a.want(http.StatusOK, http.MethodPost, serving, []byte("no CSR")); !strings.Contains(string(b), "EC PRIVATE KEY") {
		t.Errorf("a request with an invalid CSR is answered with %s", b)
	}
	a.want(http.StatusOK, http.MethodGet, "/v1-k3s/config", nil, set("Authorization", "Bearer "+bootstrapToken))

	foreign, err := NewAuthority("k3s-client")
	if err != nil {
		t.Fatal(err)
	}
	own := a.request("/v1-k3s/client-kubelet.crt")
	if a.client, err = foreign.pair(Subject{Name: "system:node:" + a.name, Groups: []string{"system:nodes"},
		Usage: x509.ExtKeyUsageClientAuth}); err != nil {
		t.Fatal(err)
	}
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, serving)
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, "/api/v1/nodes")
	a.client = own
	a.wantRefused(http.StatusUnauthorized, http.MethodGet, serving) // the Node does not exist
	a.wantRefused(http.StatusBadRequest, http.MethodGet, serving, set("k3s-Node-Name", "another"))
	a.want(http.StatusBadRequest, http.MethodGet, "/v1-k3s/connect", nil) // it is not a WebSocket
}

// TestConnect checks that only the API server's user can use the tunnels, and what the server answers.
func TestConnect(t *testing.T) {
	t.Parallel()
	c, first := Start(t)
	s := first.Another(t, c)
	a := newAgent(t, c, s, s.NodeToken())
	node, err := s.pki.client.pair(Subject{Name: "system:node:" + a.name, Groups: []string{"system:nodes"}, Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	master, err := s.pki.client.pair(Subject{Name: "system:apiserver", Groups: []string{"system:masters"}, Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	serving := a.request("/v1-k3s/serving-kubelet.crt")
	target := a.name + ":10250"

	_, status := a.tunnelTo(target)
	if status != http.StatusForbidden {
		t.Errorf("without a certificate: %d", status)
	}
	a.client = node
	if _, status := a.tunnelTo(target); status != http.StatusForbidden {
		t.Errorf("with a node's certificate: %d", status)
	}
	a.client = master
	if _, status := a.tunnelTo(target); status != http.StatusBadGateway {
		t.Errorf("to a node without a tunnel: %d", status)
	}
	a.client = node
	a.serve(serving, s.PKI().ClientCA())
	a.connect()
	a.client = master
	conn, status := a.tunnelTo(target)
	if status != http.StatusOK {
		t.Fatalf("to a node with a tunnel: %d", status)
	}
	inner := tls.Client(conn, &tls.Config{RootCAs: a.roots, ServerName: a.name, Certificates: []tls.Certificate{master}})
	if err := inner.HandshakeContext(t.Context()); err != nil {
		t.Errorf("through the tunnel: %v", err)
	}
	inner.Close()

	forbidden, err := s.DialThrough(t.Context(), a.name, "tcp", "127.0.0.1:22")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := forbidden.Read(make([]byte, 1)); err == nil {
		t.Errorf("the agent has answered with %d bytes from a port that it must not dial", n)
	}
}

// tunnelTo sends a CONNECT and returns the connection behind it and the status.
func (a *agent) tunnelTo(target string) (net.Conn, int) {
	a.t.Helper()
	raw, err := a.m.Dial(a.t.Context(), "tcp", a.s.c.Address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { raw.Close() })
	config := a.tls()
	config.ServerName = cluster.Address
	conn := tls.Client(raw, config)
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		a.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		a.t.Fatal(err)
	}
	return conn, answer.StatusCode
}
