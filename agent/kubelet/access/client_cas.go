package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	authn "k8s.io/api/authentication/v1"

	"github.com/islet-edge/islet/internal/clientca"
)

// credentialID is the key of the user's extra field that contains the ID of the certificate.
const credentialID = "authentication.kubernetes.io/credential-id"

// clientCAs contains the CAs of client certificates. When a client presents a certificate, the file is read
// again if it has changed. If the file cannot be read or parsed, the previous CAs remain in use.
type clientCAs struct {
	path string
	log  *slog.Logger

	mu          sync.Mutex
	seen        fs.FileInfo // file info of the loaded file
	loggedError string      // the error that was logged last
	pool        *x509.CertPool
}

func newClientCAs(path string, log *slog.Logger) *clientCAs {
	return &clientCAs{path: path, log: log}
}

// verifyUser verifies the client's certificate, and returns the identity in it. The result is nil if there is no
// certificate, or if the certificate has no common name.
func (a *clientCAs) verifyUser(c *tls.ConnectionState, now time.Time) (*authn.UserInfo, error) {
	if a.path == "" || c == nil || len(c.PeerCertificates) == 0 {
		return nil, nil
	}
	pool := a.currentPool()
	if pool == nil {
		return nil, fmt.Errorf("verify a client certificate: no CAs could be read from %s", a.path)
	}
	leaf, between := c.PeerCertificates[0], x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, fmt.Errorf("verify the client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	sum := sha256.Sum256(leaf.Raw)
	return addAuthenticatedGroup(&authn.UserInfo{Username: leaf.Subject.CommonName, Groups: leaf.Subject.Organization,
		Extra: map[string]authn.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}}}), nil
}

// addAuthenticatedGroup returns a user with the group of all authenticated users added.
func addAuthenticatedGroup(u *authn.UserInfo) *authn.UserInfo {
	if slices.Contains(u.Groups, authenticatedGroup) || slices.Contains(u.Groups, unauthenticated) {
		return u
	}
	known := *u
	known.Groups = append(slices.Clone(u.Groups), authenticatedGroup)
	return &known
}

// currentPool returns the CAs. It first reads the file again if the file has changed. The result is nil if
// the file could never be read.
func (a *clientCAs) currentPool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	info, err := os.Stat(a.path)
	if err == nil && sameFile(a.seen, info) {
		return a.pool
	}
	a.seen = info
	if err == nil {
		err = a.read()
	}
	text := fmt.Sprint(err)
	if err != nil && text != a.loggedError {
		a.log.Error("cannot read the CAs of client certificates", "file", a.path, "still known", a.pool != nil, "error", err)
	}
	a.loggedError = text
	return a.pool
}

func (a *clientCAs) read() error {
	pool, err := clientca.Read(a.path)
	if err == nil {
		a.pool = pool
	}
	return err
}

func sameFile(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
