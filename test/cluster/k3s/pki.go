package k3s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// A PKI contains the CAs and keys of a server. Clients and servers have different CAs. k3s pkg/daemons/control/deps/deps.go, genCerts.
type PKI struct {
	client, server, requestHeader *Authority

	// The keys of nodes that send no request for a certificate are shared by all nodes.
	clientKubeletKey, servingKubeletKey, sharedKey *ecdsa.PrivateKey
	authProxy                                      tls.Certificate // with which the proxy names users to the API server
}

// NewPKI creates all CAs and keys.
func NewPKI() (*PKI, error) {
	var p PKI
	var errs [7]error
	p.client, errs[0] = NewAuthority("k3s-client")
	p.server, errs[1] = NewAuthority("k3s-server")
	p.requestHeader, errs[2] = NewAuthority("k3s-request-header")
	p.clientKubeletKey, errs[3] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.servingKubeletKey, errs[4] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.sharedKey, errs[5] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	p.authProxy, errs[6] = p.requestHeader.pair(Subject{Name: "system:auth-proxy", Usage: x509.ExtKeyUsageClientAuth})
	return &p, errs[6]
}

// ClientCA and ServerCA return the certificates of the CAs in PEM.
func (p *PKI) ClientCA() []byte { return p.client.PEM() }

// ServerCA returns the certificate that /cacerts returns.
func (p *PKI) ServerCA() []byte { return p.server.PEM() }

// listener returns the certificate with which the server listens. k3s adds each host name that a client sends; here the names are fixed.
// k3s pkg/cluster/https.go, newListener.
func (p *PKI) listener(host string) (tls.Certificate, error) {
	return p.server.pair(Subject{Name: "k3s", Groups: []string{"k3s"}, Usage: x509.ExtKeyUsageServerAuth,
		DNS: append([]string{"localhost", "control"}, apiNames...),
		IPs: []net.IP{net.ParseIP(host), net.ParseIP("127.0.0.1"), net.ParseIP("::1"), net.ParseIP("10.96.0.1")}})
}

var apiNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}

// apiServer is the address at which only the server's host reaches the API server.
const apiServer = "127.0.0.1:6444"

// write creates the files of a control plane in a directory: k3s' files below tls and etc, and the kubeconfigs with the names that
// package cluster reads. dir is the directory as the control plane's processes see it. The names of certificates' subjects are k3s'
// pkg/daemons/control/deps/deps.go, genClientCerts, genServerCerts, genRequestHeaderCerts and genEgressSelectorConfig.
func (p *PKI) write(at, dir, address, egress string) error {
	f := files{at: at}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	for name, a := range map[string]*Authority{"client-ca": p.client, "server-ca": p.server, "request-header-ca": p.requestHeader} {
		f.pair("tls/"+name, tls.Certificate{Certificate: [][]byte{a.Cert.Raw}, PrivateKey: a.Key})
	}
	f.pair("pki/ca", tls.Certificate{Certificate: [][]byte{p.client.Cert.Raw}, PrivateKey: p.client.Key}) // for Cluster.Certificate
	f.pair("tls/client-auth-proxy", p.authProxy)
	serving := f.sign("tls/serving-kube-apiserver", p.server, Subject{Name: "kube-apiserver", Usage: x509.ExtKeyUsageServerAuth,
		DNS: append([]string{"localhost"}, apiNames...),
		IPs: []net.IP{net.ParseIP(host), net.ParseIP("127.0.0.1"), net.ParseIP("10.96.0.1")}})
	f.pair("pki/apiserver", serving) // for Cluster.Registry
	of := func(name string, groups ...string) Subject {
		return Subject{Name: name, Groups: groups, Usage: x509.ExtKeyUsageClientAuth}
	}
	f.sign("tls/client-kube-apiserver", p.client, of("system:apiserver", masters))
	f.kubeconfig("super-admin.conf", address, p.server, f.sign("tls/client-admin", p.client, of("system:admin", masters)))
	f.kubeconfig("controller-manager.conf", apiServer, p.server,
		f.sign("tls/client-controller", p.client, of("system:kube-controller-manager")))
	f.kubeconfig("scheduler.conf", apiServer, p.server, f.sign("tls/client-scheduler", p.client, of("system:kube-scheduler")))
	f.serviceKey("pki/sa")
	connection := `{"proxyProtocol": "Direct"}`
	if egress != "disabled" {
		connection = fmt.Sprintf(`{"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": "https://127.0.0.1:6443", "tlsConfig": {
  "caBundle": "%[1]s/tls/server-ca.crt", "clientKey": "%[1]s/tls/client-kube-apiserver.key",
  "clientCert": "%[1]s/tls/client-kube-apiserver.crt"}}}}`, dir)
	}
	f.write("etc/egress-selector-config.yaml", []byte(fmt.Sprintf(`{"kind": "EgressSelectorConfiguration",
  "apiVersion": "apiserver.k8s.io/v1beta1", "egressSelections": [{"name": "cluster", "connection": %s}]}`, connection)))
	return f.err
}

// files writes files below a directory until the first error.
type files struct {
	at  string
	err error
}

func (f *files) write(name string, content []byte) {
	if f.err != nil {
		return
	}
	path := filepath.Join(f.at, name)
	if f.err = os.MkdirAll(filepath.Dir(path), 0o700); f.err == nil {
		f.err = os.WriteFile(path, content, 0o600)
	}
}

func (f *files) pair(name string, c tls.Certificate) {
	if f.err != nil {
		return
	}
	chain, key, err := encodePair(c)
	if err != nil {
		f.err = err
	}
	f.write(name+".crt", chain)
	f.write(name+".key", key)
}

func (f *files) sign(name string, a *Authority, s Subject) tls.Certificate {
	if f.err != nil {
		return tls.Certificate{}
	}
	c, err := a.pair(s)
	if err != nil {
		f.err = err
	}
	f.pair(name, c)
	return c
}

// serviceKey writes a new key for the tokens of ServiceAccounts.
func (f *files) serviceKey(name string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.err = err
		return
	}
	private, err := encodeKey(key)
	if err != nil {
		f.err = err
		return
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		f.err = err
		return
	}
	f.write(name+".key", private)
	f.write(name+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

func (f *files) kubeconfig(name, server string, a *Authority, c tls.Certificate) {
	if f.err != nil {
		return
	}
	chain, key, err := encodePair(c)
	if err != nil {
		f.err = err
		return
	}
	text := base64.StdEncoding.EncodeToString
	f.write(name, []byte(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "Default",
  "clusters": [{"name": "local", "cluster": {"server": "https://%s", "certificate-authority-data": "%s"}}],
  "users": [{"name": "user", "user": {"client-certificate-data": "%s", "client-key-data": "%s"}}],
  "contexts": [{"name": "Default", "context": {"cluster": "local", "namespace": "default", "user": "user"}}]}
`, server, text(a.PEM()), text(chain), text(key))))
}
