package clientca

import (
	"crypto/x509"
	"errors"

	"github.com/islet-edge/islet/internal/regular"
)

// maxSize is the maximum size of the file in bytes.
const maxSize = 4 << 20

// Read reads the certificate authorities that sign client certificates from a PEM file, the
// clientCAFile in authentication.x509 of a KubeletConfiguration.
func Read(file string) (*x509.CertPool, error) {
	data, err := regular.Read(file, maxSize)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("it holds no certificate")
	}
	return pool, nil
}
