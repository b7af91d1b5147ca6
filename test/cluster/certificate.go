package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// Certificate returns a client certificate for a node, and the key of the certificate. The
// cluster's CA has signed the certificate. The certificate is valid in the given period.
func (c *Cluster) Certificate(t testing.TB, node string, begin, end time.Time) string {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(c.path("pki/ca.crt"), c.path("pki/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	return clientCertificate(t, node, begin, end, &ca)
}

// RejectedCertificate is like Certificate, but the certificate is self-signed, so the API server rejects it.
func RejectedCertificate(t testing.TB, node string, begin, end time.Time) string {
	t.Helper()
	return clientCertificate(t, node, begin, end, nil)
}

func clientCertificate(t testing.TB, node string, begin, end time.Time, ca *tls.Certificate) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		SerialNumber: big.NewInt(begin.UnixNano()),
		NotBefore:    begin, NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if ca == nil {
		ca = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}
