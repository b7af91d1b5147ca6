package link

import (
	"crypto/tls"

	"k8s.io/client-go/rest"
)

// ClientCertificate is what the node shows its API server; nil: it has none.
func (l *Link) ClientCertificate() *tls.Certificate {
	c, err := l.identity.rest()
	if err != nil {
		return nil
	}
	t, err := rest.TLSConfigFor(c)
	switch {
	case err != nil || t == nil:
		return nil
	case t.GetClientCertificate != nil:
		if cert, err := t.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil && len(cert.Certificate) > 0 {
			return cert
		}
		return nil
	case len(t.Certificates) > 0:
		return &t.Certificates[0]
	}
	return nil
}
