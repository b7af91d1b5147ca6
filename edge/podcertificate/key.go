package podcertificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/islet-edge/islet/internal/inputweight"
)

// newKey creates a key of one of the API's key types. The result is PKCS#8 in PEM.
func newKey(keyType string) ([]byte, error) {
	var private crypto.Signer
	var err error
	switch keyType {
	case "RSA3072":
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		private, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, fmt.Errorf("this node does not support keyType %q", keyType)
	}
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseKey(key []byte) (crypto.Signer, error) {
	b, _ := pem.Decode(key)
	if b == nil {
		return nil, errors.New("the stored key is not PEM")
	}
	private, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the stored key cannot be parsed: %w", err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("the stored key cannot sign")
	}
	return signer, nil
}

// proofOf returns a certificate signing request (PKCS#10). Its signature proves that this node has the private key. Its content is empty.
func proofOf(key []byte) ([]byte, error) {
	private, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return nil, fmt.Errorf("sign a request with the new key: %w", err)
	}
	return proof, nil
}

// maxChain is the maximum size of a decoded certificate chain, in bytes. For comparison, the API's maximum for a CSR is 64 KiB.
const maxChain = 1 << 20

// chainOf validates the issued chain and removes comments and headers. The chain must contain only certificates, and the first one must
// belong to the key.
func chainOf(issued string, key []byte) ([]byte, error) {
	if err := inputweight.PEM(maxChain, issued); err != nil {
		return nil, fmt.Errorf("the certificate chain %w", err)
	}
	var out []byte
	for b, rest := pem.Decode([]byte(issued)); b != nil; b, rest = pem.Decode(rest) {
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("the certificate chain has a PEM block %q", b.Type)
		}
		if out == nil {
			if err := matchKey(b.Bytes, key); err != nil {
				return nil, err
			}
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Bytes})...)
	}
	if out == nil {
		return nil, errors.New("the certificate chain has no certificate")
	}
	return bytes.Clone(out), nil
}

func matchKey(certificate, key []byte) error {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("the certificate cannot be parsed: %w", err)
	}
	private, err := parseKey(key)
	if err != nil {
		return err
	}
	public, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(leaf.PublicKey) {
		return errors.New("the certificate does not belong to the requested key")
	}
	return nil
}
