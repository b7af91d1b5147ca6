package k3s

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/printable"
)

// A Purpose is the use of a certificate. Its value is the name of the certificate at the server.
type Purpose string

// The certificates of a node.
const (
	ForClient  Purpose = "client-kubelet"  // the node at the API server
	ForServing Purpose = "serving-kubelet" // the node's own server on port 10250
)

// A Node is what a server must know of a node before it signs a certificate.
type Node struct {
	Name     string
	Password string // see EnsurePassword
	IPs      []netip.Addr
}

// A Pair is a certificate with its chain and its key.
type Pair struct {
	PEM  []byte // all of them in one text
	Leaf *x509.Certificate
	// SharedKey is set if the server has made the key. Servers before k3s 1.33 do, and give each node the same key.
	SharedKey bool
	cert      *tls.Certificate
}

// TLS returns the pair for a connection.
func (p *Pair) TLS() *tls.Certificate { return p.cert }

// Issue requests a certificate with a new key. It checks that the certificate is of this node and for this purpose. The parameter
// signers contains the CA that signs certificates for this purpose.
func (c *Client) Issue(ctx context.Context, use Purpose, n Node, signers []byte) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: n.Name}}, key)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.Server+prefix+string(use)+".crt", bytes.NewReader(csr))
	if err != nil {
		return nil, err
	}
	r.Header.Set("k3s-Node-Name", n.Name)
	r.Header.Set("k3s-Node-Password", n.Password)
	var ips []string
	for _, ip := range n.IPs {
		ips = append(ips, ip.Unmap().WithZone("").String())
	}
	r.Header.Set("k3s-Node-IP", strings.Join(ips, ","))
	answer, err := c.do(r)
	if err != nil {
		return nil, err
	}
	made, err := c.pairOf(answer, key)
	if err == nil {
		err = made.check(use, n.Name, signers, c.cfg.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL, err)
	}
	return made, nil
}

// pairOf returns the pair of an answer. The key comes from the answer or, if it has none, from the request.
func (c *Client) pairOf(answer []byte, key *ecdsa.PrivateKey) (*Pair, error) {
	if err := inputweight.PEM(maxAnswer, string(answer)); err != nil {
		return nil, err
	}
	var certs, keys []byte
	for count := 0; ; count++ {
		block, rest := pem.Decode(answer)
		if block == nil {
			break
		}
		if count > maxCertificates {
			return nil, fmt.Errorf("the answer has more than %d certificates", maxCertificates)
		}
		answer, block.Headers = rest, nil
		switch {
		case block.Type == "CERTIFICATE":
			certs = append(certs, pem.EncodeToMemory(block)...)
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			keys = append(keys, pem.EncodeToMemory(block)...)
		}
	}
	shared := len(keys) > 0
	if !shared {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		keys = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	p, err := ParsePair(slices.Concat(certs, keys))
	if err != nil {
		return nil, err
	}
	p.SharedKey = shared
	return p, nil
}

// ParsePair parses a certificate, its chain and its key.
func ParsePair(text []byte) (*Pair, error) {
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("no certificate with its key: %w", err)
	}
	if _, ok := cert.PrivateKey.(crypto.Signer); !ok {
		return nil, errors.New("the key of the certificate cannot sign")
	}
	return &Pair{PEM: text, Leaf: cert.Leaf, cert: &cert}, nil
}

// check returns an error if the node cannot use the certificate.
func (p *Pair) check(use Purpose, node string, signers []byte, now time.Time) error {
	pool, err := poolOf(signers)
	if err != nil {
		return fmt.Errorf("the CA of the certificate: %w", err)
	}
	name, want := p.Leaf.Subject.CommonName, node
	usage := x509.ExtKeyUsageServerAuth
	if use == ForClient {
		want, usage = "system:node:"+node, x509.ExtKeyUsageClientAuth
	}
	switch {
	case name != want:
		return fmt.Errorf("the certificate is of %q, and not of %q", printable.Cut(name, maxMessage), want)
	case use == ForClient && !slices.Contains(p.Leaf.Subject.Organization, "system:nodes"):
		return errors.New("the certificate is not of the group system:nodes")
	}
	between := x509.NewCertPool()
	for _, der := range p.cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(c)
	}
	_, err = p.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// Covers reports whether a serving certificate is valid for all addresses.
func (p *Pair) Covers(ips []netip.Addr) bool {
	for _, ip := range ips {
		if p.Leaf.VerifyHostname(ip.Unmap().WithZone("").String()) != nil {
			return false
		}
	}
	return true
}

const (
	// renewBefore is the time before the end of a certificate at which it is renewed, at the earliest. An agent of k3s renews at its first
	// start within this time.
	renewBefore = 120 * 24 * time.Hour
	// renewShare is the share of a short life that is left when the certificate is renewed, at the earliest.
	renewShare = 0.3
)

// RenewAt returns the time at which a certificate that was issued at the given time is renewed. The beginning of its validity says nothing
// about its age, because a server copies that time from its CA. The time differs between nodes, but not between two calls.
func RenewAt(leaf *x509.Certificate, issued time.Time) time.Time {
	if issued.Before(leaf.NotBefore) {
		issued = leaf.NotBefore
	}
	window := min(time.Duration(renewShare*float64(leaf.NotAfter.Sub(issued))), renewBefore)
	if window <= 0 { // the clock was wrong
		window = renewBefore
	}
	share := 0.5
	if b := leaf.SerialNumber.Bytes(); len(b) > 0 {
		share = float64(b[len(b)-1]) / 255
	}
	return leaf.NotAfter.Add(-window + time.Duration(share*float64(window)/3))
}

// parseCertificates parses a bundle. It returns an error if there is no certificate.
func parseCertificates(bundle []byte) (all []*x509.Certificate, _ error) {
	if err := inputweight.PEM(maxAnswer, string(bundle)); err != nil {
		return nil, err
	}
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		if len(all) == maxCertificates {
			return nil, fmt.Errorf("it has more than %d certificates", maxCertificates)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no certificate")
	}
	return all, nil
}

func poolOf(bundle []byte) (*x509.CertPool, error) {
	all, err := parseCertificates(bundle)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool, nil
}
