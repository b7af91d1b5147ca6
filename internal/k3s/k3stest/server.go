package k3stest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Secret is the password of the cluster, and BootstrapToken a token of kubeadm's form.
const (
	Secret         = "secret"
	BootstrapToken = "abcdef.0123456789abcdef"
)

// A Server is a server of k3s. Set the exported fields before its first request.
type Server struct {
	URL string
	// Client and Serving sign certificates. Serving also signs the certificate of the server.
	Client, Serving *CA
	// SharedKey makes the server ignore the keys of nodes, as servers before k3s 1.33 do.
	SharedKey bool
	// RefuseCertificates makes the server accept only tokens at its supervisor, as servers before k3s 1.26.2 do.
	RefuseCertificates bool
	// Life is the validity of certificates. The default is a year.
	Life time.Duration
	// Config is added to the answer of /v1-k3s/config.
	Config map[string]any
	// Answer answers a request in place of the server if it returns true.
	Answer func(w http.ResponseWriter, r *http.Request) bool
	// Connect serves /v1-k3s/connect.
	Connect http.HandlerFunc

	mu        sync.Mutex
	passwords map[string]string
	requests  []string
	servers   []string
	lastKey   any
}

// A CA signs certificates.
type CA struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a CA that is ten years old.
func NewCA(t *testing.T, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().AddDate(-9, 0, 0), NotAfter: time.Now().AddDate(11, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Sign returns a certificate with its chain. Like k3s' certificates, it is valid from the time at which its CA is valid.
func (c *CA) Sign(template *x509.Certificate, public any, life time.Duration) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, c.cert.NotBefore, time.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, public, c.key)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), c.PEM...), err
}

// Issue returns a CA that this one has signed.
func (c *CA) Issue(t *testing.T, name string) []byte {
	t.Helper()
	chain, err := c.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		SubjectKeyId: []byte(name), AuthorityKeyId: c.cert.SubjectKeyId,
	}, newKey(t).Public(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(chain, c.PEM)
}

// Start starts a server.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{
		Client: NewCA(t, "k3s-client-ca"), Serving: NewCA(t, "k3s-server-ca"), Life: 365 * 24 * time.Hour,
		Connect: http.NotFound, passwords: map[string]string{},
	}
	key := newKey(t)
	chain, err := s.Serving.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "k3s"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public(), 10*365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(chain, keyPEM(t, key))
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(s)
	hs.Config.ErrorLog = log.New(io.Discard, "", 0)
	hs.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	hs.StartTLS()
	t.Cleanup(hs.Close)
	s.URL = hs.URL
	s.SetServers(strings.TrimPrefix(s.URL, "https://"))
	return s
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Token returns the token of the cluster.
func (s *Server) Token() string { return "K10" + s.Hash() + "::server:" + Secret }

// Hash returns the hash of the CA.
func (s *Server) Hash() string {
	sum := sha256.Sum256(s.Serving.PEM)
	return hex.EncodeToString(sum[:])
}

// SetServers sets the answer of /v1-k3s/apiservers.
func (s *Server) SetServers(all ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = all
}

// SetPassword sets the password that the server remembers of a node.
func (s *Server) SetPassword(node, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passwords[node] = password
}

// Read reads the signing request of a node. A test calls it in Answer, and then LastKey.
func (s *Server) Read(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if csr, err := x509.ParseCertificateRequest(body); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lastKey = csr.PublicKey
	}
}

// LastKey returns the public key of the last request that Read has read.
func (s *Server) LastKey() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastKey
}

// Requests returns the paths of all requests, and forgets them.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// NodeOf returns the node whose certificate a client has, or "".
func (s *Server) NodeOf(r *http.Request) string {
	if len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	leaf, pool := r.TLS.PeerCertificates[0], x509.NewCertPool()
	pool.AddCert(s.Client.cert)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return ""
	}
	name, _ := strings.CutPrefix(leaf.Subject.CommonName, "system:node:")
	return name
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	if s.Answer != nil && s.Answer(w, r) {
		return
	}
	if r.URL.Path == "/cacerts" {
		w.Write(s.Serving.PEM)
		return
	}
	node := s.NodeOf(r)
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok {
		switch node {
		case name:
			fail(w, http.StatusNotFound, "nodes not found")
		case "":
			fail(w, http.StatusUnauthorized, "Unauthorized")
		default:
			fail(w, http.StatusForbidden, "another node")
		}
		return
	}
	if r.URL.Path == "/v1-k3s/connect" {
		if node == "" {
			fail(w, http.StatusForbidden, "forbidden")
			return
		}
		s.Connect(w, r)
		return
	}
	user, password, _ := r.BasicAuth()
	byToken := user == "node" && password == Secret || r.Header.Get("Authorization") == "Bearer "+BootstrapToken
	switch {
	case r.Header.Get("Authorization") != "" && !byToken:
		fail(w, http.StatusUnauthorized, "not authorized")
	case !byToken && (node == "" || s.RefuseCertificates):
		fail(w, http.StatusForbidden, "forbidden")
	default:
		s.supervise(w, r, node)
	}
}

// supervise answers an authenticated request. The node is empty if the client has a token.
func (s *Server) supervise(w http.ResponseWriter, r *http.Request, node string) {
	switch r.URL.Path {
	case "/v1-k3s/config":
		answer := map[string]any{"ClusterDNS": "10.43.0.10", "ClusterDomain": "cluster.local", "HTTPSPort": 6443, "SupervisorPort": 6443,
			"EgressSelectorMode": "agent", "ClusterIPRange": map[string]any{"IP": "10.42.0.0", "Mask": "//8AAA=="}}
		for k, v := range s.Config {
			answer[k] = v
		}
		json.NewEncoder(w).Encode(answer)
	case "/v1-k3s/apiservers":
		s.mu.Lock()
		defer s.mu.Unlock()
		json.NewEncoder(w).Encode(s.servers)
	case "/v1-k3s/client-ca.crt":
		w.Write(s.Client.PEM)
	case "/v1-k3s/server-ca.crt":
		w.Write(s.Serving.PEM)
	case "/v1-k3s/client-kubelet.crt", "/v1-k3s/serving-kubelet.crt":
		s.sign(w, r, node)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) sign(w http.ResponseWriter, r *http.Request, node string) {
	name, password := r.Header.Get("K3s-Node-Name"), r.Header.Get("K3s-Node-Password")
	s.mu.Lock()
	known, ok := s.passwords[name]
	if !ok {
		s.passwords[name] = password
	}
	s.mu.Unlock()
	switch {
	case name == "" || password == "" || node != "" && node != name:
		fail(w, http.StatusBadRequest, "header node name does not match auth node name")
		return
	case ok && known != password:
		fail(w, http.StatusForbidden, "unable to verify password for node "+name)
		return
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	public, shared := any(key.Public()), true
	if body, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPost && !s.SharedKey {
		if csr, err := x509.ParseCertificateRequest(body); err == nil {
			public, shared = csr.PublicKey, false
		}
	}
	ca, template := s.Client, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if strings.HasPrefix(r.URL.Path, "/v1-k3s/serving") {
		ca, template = s.Serving, &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for text := range strings.SplitSeq(r.Header.Get("K3s-Node-Ip"), ",") {
			if ip := net.ParseIP(text); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			}
		}
	}
	chain, err := ca.Sign(template, public, s.Life)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Write(chain)
	if shared {
		der, _ := x509.MarshalECPrivateKey(key)
		pem.Encode(w, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
}

// fail answers with a Status, as k3s does.
func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})
}
