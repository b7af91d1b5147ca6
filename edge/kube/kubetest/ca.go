package kubetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// A CA is a certificate authority for tests.
type CA struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA creates a CA that is valid from 2000 to 2100, for tests with any clock.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

// Pool returns a certificate pool that contains only this CA.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Sign creates a certificate from a template for a public key. The result is in PEM.
func (ca *CA) Sign(t testing.TB, template *x509.Certificate, public crypto.PublicKey) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Client creates a client certificate and its key. The results are in PEM.
func (ca *CA) Client(t testing.TB, name string, groups []string, from, until time.Time) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	cert = ca.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &k.PublicKey)
	return cert, keyPEM(t, k)
}

// Server creates a server certificate for the given IP addresses. It is valid for a year.
func (ca *CA) Server(t testing.TB, from time.Time, addresses ...string) tls.Certificate {
	t.Helper()
	return ca.ServerUntil(t, from, from.AddDate(1, 0, 0), addresses...)
}

// ServerUntil is like Server, but the certificate is valid until the given time.
func (ca *CA) ServerUntil(t testing.TB, from, until time.Time, addresses ...string) tls.Certificate {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, NotBefore: from.Add(-time.Minute), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	pair, err := tls.X509KeyPair(ca.Sign(t, template, &k.PublicKey), keyPEM(t, k))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
