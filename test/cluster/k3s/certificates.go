package k3s

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"net"
	"time"
)

// year is the validity of a certificate that k3s signs; a CA has ten. dynamiclistener cert/cert.go.
const year = 365 * 24 * time.Hour

// An Authority signs certificates as k3s' CAs do.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// NewAuthority creates a self-signed CA. The name in its subject ends with the time in seconds.
// k3s pkg/daemons/control/deps/deps.go, createSigningCertKey; dynamiclistener cert/cert.go, NewSelfSignedCACert.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(0),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-ca@%d", name, now.Unix())},
		NotBefore:             now.UTC(),
		NotAfter:              now.Add(10 * year).UTC(),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{Cert: cert, Key: key}, err
}

// A Subject contains what the server certifies.
type Subject struct {
	Name     string
	Groups   []string
	DNS      []string
	IPs      []net.IP
	Usage    x509.ExtKeyUsage
	Validity time.Duration // from now; 0 for a year
}

// Sign returns a certificate for a public key. It is valid since the CA is, not since now. dynamiclistener cert/cert.go, NewSignedCert.
func (a *Authority) Sign(s Subject, key crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, err
	}
	if s.Validity == 0 {
		s.Validity = year
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Groups},
		DNSNames:     s.DNS,
		IPAddresses:  s.IPs,
		NotBefore:    a.Cert.NotBefore,
		NotAfter:     time.Now().Add(s.Validity).UTC(),
		KeyUsage:     x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{s.Usage},
	}, a.Cert, key, a.Key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// PEM returns the CA's certificate.
func (a *Authority) PEM() []byte { return encodeCerts(a.Cert) }

// pool returns the CA as the only root.
func (a *Authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// pair returns a new key with its certificate, followed by the CA.
func (a *Authority) pair(s Subject) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := a.Sign(s, key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw, a.Cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// encodePair returns the PEM of a certificate with its chain, and of its key.
func encodePair(c tls.Certificate) (chain, key []byte, err error) {
	for _, der := range c.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err = encodeKey(c.PrivateKey.(*ecdsa.PrivateKey))
	return chain, key, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// encodeCerts returns certificates in PEM, one after another. k3s pkg/util/cert.go.
func encodeCerts(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Buffer returns no error
	}
	return b.Bytes()
}
