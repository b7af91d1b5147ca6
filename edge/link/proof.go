package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/islet-edge/islet/edge/kube"
)

var (
	// errRejected means that the API server rejects a new certificate, or that its signer has issued a certificate for another user.
	errRejected = errors.New("the new certificate is rejected, so the present one stays in use")
	// errDueAgain means that a new certificate is in use, but must be renewed again already.
	errDueAgain = errors.New("the new certificate is already due for renewal: the clock of this machine or of the signer may be wrong")
)

// rotate replaces the certificate with a new one. The current certificate stays in use until the API server has accepted the new one.
// Otherwise a signer with another CA, such as a control plane in the middle of a change of its CA, could cut off the node for good.
func (i *identity) rotate(ctx context.Context) error {
	var tried *x509.Certificate
	_, err := i.obtainClientCert(ctx, i.link.client, nil, func(p *pair) error {
		tried = p.cert.Leaf
		return i.prove(ctx, p)
	})
	if tried != nil && (err == nil || errors.Is(err, errRejected)) { // otherwise the next attempt tries or saves the same certificate again
		i.rotations.Succeeded(longestInterval(tried))
	}
	if err == nil && i.load() && i.isDue() {
		err = errDueAgain
	}
	return err
}

// longestInterval returns the longest interval between two renewals: a tenth of the certificate's life, so that no certificate expires
// during the interval. The interval also passes while the machine is suspended.
func longestInterval(leaf *x509.Certificate) time.Duration {
	return leaf.NotAfter.Sub(leaf.NotBefore) / 10
}

// prove returns an error unless the API server accepts a certificate of this node. The server checks the validity, the usage and the CA of
// the certificate. The error is errRejected if another certificate must be requested.
func (i *identity) prove(ctx context.Context, p *pair) error {
	leaf := p.cert.Leaf
	if s := leaf.Subject; s.CommonName != commonName(i.link.cfg.NodeName) || !slices.Contains(s.Organization, nodesGroup) {
		return fmt.Errorf("%w: it is for the user %q in the groups %q", errRejected, s.CommonName, s.Organization)
	}
	used, err := i.restConfig()
	if err != nil {
		return err
	}
	with := *used
	with.CertData, with.KeyData = p.pem, p.pem
	c, err := i.newClient(&with)
	if err != nil {
		return err
	}
	defer c.CloseConnections()
	a, err := c.Ready(kube.WithSilenceTimeout(ctx, probeNew))
	switch {
	case err != nil:
		return fmt.Errorf("try the new certificate: %w", err)
	case a.Status == http.StatusUnauthorized && (a.Date.IsZero() || !a.Date.Before(leaf.NotBefore)):
		return fmt.Errorf("%w: %s answers 401 Unauthorized", errRejected, with.Host)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusTooManyRequests, a.Status >= http.StatusInternalServerError:
		return fmt.Errorf("try the new certificate, which is valid from %s: %s answers %d at %s", leaf.NotBefore, with.Host, a.Status,
			a.Date)
	}
	return nil
}

// tryOtherPair tries the other stored pair if the API server has rejected the current one. If the server accepts the other pair,
// tryOtherPair makes it the pair in use.
func (i *identity) tryOtherPair(ctx context.Context) {
	i.mu.Lock()
	refused := i.refused.cert
	i.refused.cert = nil
	if refused != nil {
		i.refused.pace.Succeeded(afterDenial)
	}
	i.mu.Unlock()
	if refused == nil {
		return
	}
	current, err := loadPair(i.pairs.currentPath())
	if err != nil || !current.cert.Leaf.Equal(refused) {
		return
	}
	files, err := i.pairs.rank(i.link.clock.Now(), "")
	if err != nil {
		return
	}
	for _, file := range slices.Backward(files) {
		other, err := loadPair(file)
		if err != nil || other.cert.Leaf.Equal(refused) || i.link.clock.Now().After(other.cert.Leaf.NotAfter) {
			continue
		}
		if err = i.prove(ctx, other); err == nil {
			err = i.pairs.link(file)
		}
		i.log.Warn("the API server rejects the client certificate, and the node has tried the other one", "file", file, "error", err)
		if err == nil {
			return
		}
	}
}
