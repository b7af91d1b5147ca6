package clientca

import (
	"crypto/x509"
	"errors"

	"github.com/islet-edge/islet/internal/regular"
)

// most is how many bytes the file may have.
const most = 4 << 20

// Read reads those that sign client certificates from a file in PEM, as
// authentication.x509.clientCAFile of a KubeletConfiguration names one.
func Read(file string) (*x509.CertPool, error) {
	data, err := regular.Read(file, most)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("it holds no certificate")
	}
	return pool, nil
}
