package k3s

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// An Issue contains the fields of a certificate before the server signs it. Misissue lets a test change them.
type Issue struct {
	Subject   Subject
	Authority *Authority
	Key       crypto.PublicKey
}

// servingKubelet signs the certificate with which a node serves. It is valid for the node's name, localhost, 127.0.0.1 and the addresses in
// the header. k3s pkg/server/handlers/handlers.go, ServingKubeletCert.
func (s *Server) servingKubelet(w http.ResponseWriter, r *http.Request) {
	node, status, err := s.checkNode(r)
	if err != nil {
		refuse(w, r, status, err)
		return
	}
	ips := []net.IP{net.ParseIP("127.0.0.1")}
	if list := r.Header.Get("k3s-Node-IP"); list != "" {
		for text := range strings.SplitSeq(list, ",") {
			ip := net.ParseIP(text)
			if ip == nil {
				refuse(w, r, http.StatusInternalServerError, fmt.Errorf("invalid node IP address %s", text))
				return
			}
			ips = append(ips, ip)
		}
	}
	s.signAndSend(w, r, s.pki.servingKubeletKey, &Issue{Authority: s.pki.server,
		Subject: Subject{Name: node, Usage: x509.ExtKeyUsageServerAuth, DNS: []string{node, "localhost"}, IPs: ips}})
}

// clientKubelet signs the certificate with which a node is a client of the API server. k3s pkg/server/handlers/handlers.go,
// ClientKubeletCert.
func (s *Server) clientKubelet(w http.ResponseWriter, r *http.Request) {
	node, status, err := s.checkNode(r)
	if err != nil {
		refuse(w, r, status, err)
		return
	}
	s.signAndSend(w, r, s.pki.clientKubeletKey, &Issue{Authority: s.pki.client,
		Subject: Subject{Name: nodePrefix + node, Groups: []string{nodesGroup}, Usage: x509.ExtKeyUsageClientAuth}})
}

// clientOf signs the certificate of a user that all agents share. k3s pkg/server/handlers/handlers.go, ClientKubeProxyCert and
// ClientControllerCert.
func (s *Server) clientOf(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.signAndSend(w, r, s.pki.sharedKey, &Issue{Authority: s.pki.client,
			Subject: Subject{Name: name, Usage: x509.ExtKeyUsageClientAuth}})
	}
}

// signAndSend answers with a certificate and the CA. The key comes from the request for a certificate in a POST (DER; the signature is not
// checked, and the names in it have no effect). Otherwise it is the server's key, which follows the certificates: the form of older agents.
// k3s pkg/server/handlers/handlers.go, signAndSend.
func (s *Server) signAndSend(w http.ResponseWriter, r *http.Request, own *ecdsa.PrivateKey, i *Issue) {
	var key []byte
	if csr, err := certificateRequest(r); err == nil {
		i.Key = csr.PublicKey
	} else {
		i.Key = own.Public()
		if key, err = encodeKey(own); err != nil {
			refuse(w, r, http.StatusInternalServerError, err)
			return
		}
	}
	s.mu.Lock()
	i.Subject.Validity = s.validity
	if s.misissue != nil {
		s.misissue(i)
		s.lied++
	}
	s.mu.Unlock()
	cert, err := i.Authority.Sign(i.Subject, i.Key)
	if err != nil {
		refuse(w, r, http.StatusInternalServerError, err)
		return
	}
	_, _ = w.Write(append(encodeCerts(cert, i.Authority.Cert), key...)) // the client may be gone
}

func certificateRequest(r *http.Request) (*x509.CertificateRequest, error) {
	if r.Method != http.MethodPost {
		return nil, fmt.Errorf("a %s contains no request for a certificate", r.Method)
	}
	der, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificateRequest(der)
}
