package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	firstAttempt = 2 * time.Second
	maxAttempt   = time.Minute // maximum back-off after an answer of the server
	// afterDenial is the pause after a denied request. The next request uses another key.
	afterDenial = 10 * time.Minute
)

// noCredentials is an error that contains the reason why the node has no credentials.
type noCredentials struct{ reason, message string }

// Error implements error.
func (e *noCredentials) Error() string { return e.reason + ": " + e.message }

// Is reports whether target is kube.ErrNoLink. This error is equivalent to kube.ErrNoLink, because no request was sent.
func (e *noCredentials) Is(target error) bool { return target == kube.ErrNoLink }

// identity maintains the node's credentials. They come from the kubeconfig. A newer client certificate replaces the certificate of the
// kubeconfig.
//
//	no usable kubeconfig, or its certificate has expired --bootstrap--> pair, kubeconfig
//	70 to 90 % of the certificate's life have passed -------rotate----> pair, if the server accepts it
//	the server rejects the pair ----------------------------------> the other stored pair, if the server accepts it
type identity struct {
	link    *Link
	log     *slog.Logger
	pairs   pairFiles
	files   chan struct{} // capacity 1; a value means that files may have changed
	changed chan struct{} // capacity 1; a value means that the result of restConfig has changed

	// The next fields are used only by run.

	loggedFailure  string // the last error that run has logged
	rotations      retry.Pace
	bootstraps     retry.Pace
	bootstrappedBy *rest.Config // the credentials of the last bootstrap; nil if there was none

	failures atomic.Uint64

	mu            sync.Mutex
	unread        string            // the last logged error about an unreadable file
	config        *rest.Config      // nil if credentials are missing; then missingReason is set
	leaf          *x509.Certificate // nil if the credentials have no certificate
	missingReason *noCredentials
	// rejectedCert is a certificate that the server has rejected and that seems to have expired. Both conditions are needed, because the
	// clock may be wrong.
	rejectedCert *x509.Certificate
	refused      refusal
}

// A refusal makes run try the other stored pair.
type refusal struct {
	cert *x509.Certificate // the certificate that the server has rejected; nil after run has tried the other pair
	pace retry.Pace        // limits the attempts with the other pair
}

func newIdentity(l *Link) *identity {
	return &identity{
		link: l, log: l.cfg.Log, pairs: pairFiles{dir: l.cfg.CertDir, prefix: "kubelet-client"},
		files: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		missingReason: &noCredentials{ReasonNoCredentials, "this node has no cluster"},
	}
}

func (i *identity) filesChanged() { signalChannel(i.files) }

// restConfig returns the configuration of the client. It returns the same pointer until the credentials change.
func (i *identity) restConfig() (*rest.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil {
		return nil, i.missingReason
	}
	return i.config, nil
}

func (i *identity) expiryTime() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leaf == nil {
		return time.Time{}
	}
	return i.leaf.NotAfter
}

// whyRefused returns the probable reason why the server has rejected the credentials.
func (i *identity) whyRefused() (reason, message string) {
	until := i.expiryTime()
	if files, err := i.pairs.listFiles(); err == nil && len(files) > 1 {
		i.mu.Lock()
		if i.refused.pace.Left() == 0 {
			i.refused.cert = i.leaf
			i.filesChanged() // makes run try the other pair
		}
		i.mu.Unlock()
	}
	if !until.IsZero() && i.link.clock.latestTime().After(until) {
		i.mu.Lock()
		i.rejectedCert = i.leaf
		i.mu.Unlock()
		i.filesChanged() // makes run read or obtain another certificate
		message := fmt.Sprintf("the client certificate expired at %s; provide a bootstrap kubeconfig "+
			"(--bootstrap-kubeconfig) or another kubeconfig",
			until.Format(time.RFC3339))
		return ReasonCertificateExpired, message
	}
	return ReasonUnauthorized, "the server rejects the credentials of " + i.link.cfg.Kubeconfig
}

// load reads the files and reports whether usable credentials exist. If the disk returns errors for the files, load keeps the current
// credentials.
func (i *identity) load() bool {
	config, leaf, err := i.read()
	if isUnreadable(err) {
		i.mu.Lock()
		config, leaf = i.config, i.leaf
		i.mu.Unlock()
		i.warnUnread(err)
		if config != nil {
			err = nil
		}
	}
	if err != nil {
		i.setNoneUsable(&noCredentials{ReasonNoCredentials, err.Error()})
		return false
	}
	if leaf != nil {
		i.link.clock.recordHint(leaf.NotBefore)
	}
	i.mu.Lock()
	isRejected := leaf != nil && i.rejectedCert != nil && leaf.Equal(i.rejectedCert)
	i.mu.Unlock()
	if isRejected && i.link.cfg.BootstrapKubeconfig != "" {
		i.setNoneUsable(&noCredentials{ReasonCertificateExpired, "the client certificate expired at " + leaf.NotAfter.Format(time.RFC3339)})
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil || !areEqual(config, i.config) {
		i.config, i.leaf, i.missingReason = config, leaf, nil
		signalChannel(i.changed)
	}
	return true
}

// isUnreadable reports whether the error means that a file exists but cannot be read.
func isUnreadable(err error) bool {
	return errors.As(err, new(*fs.PathError)) && !errors.Is(err, fs.ErrNotExist)
}

func (i *identity) warnUnread(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unread != err.Error() {
		i.unread = err.Error()
		i.log.Warn("a file of the node's credentials cannot be read or written", "error", err)
	}
}

// setNoneUsable is like setMissing. During a bootstrap it does nothing, so the reason stays ReasonBootstrapping. If the bootstrap
// kubeconfig cannot be read, no bootstrap begins, and the message of the state contains the error.
func (i *identity) setNoneUsable(why *noCredentials) {
	if path := i.link.cfg.BootstrapKubeconfig; path != "" {
		if _, err := readRest(path); err != nil {
			i.setMissing(&noCredentials{why.reason, fmt.Sprintf("%s, and a new certificate cannot be requested: %v", why.message, err)})
			return
		}
	}
	i.mu.Lock()
	bootstrapping := i.missingReason != nil && i.missingReason.reason == ReasonBootstrapping
	i.mu.Unlock()
	if !bootstrapping {
		i.setMissing(why)
	}
}

// setMissing removes the credentials and sets the reason why they are missing.
func (i *identity) setMissing(why *noCredentials) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config != nil || i.missingReason == nil || *i.missingReason != *why {
		i.config, i.leaf, i.missingReason = nil, nil, why
		signalChannel(i.changed)
	}
}

// read returns the credentials of the kubeconfig, with the newest pair of certificate and key. A bootstrap may have been interrupted after
// saving its pair and before writing the kubeconfig. Then read writes the kubeconfig.
func (i *identity) read() (*rest.Config, *x509.Certificate, error) {
	cfg := i.link.cfg
	if cfg.Left {
		return nil, nil, errors.New("the configuration has no cluster any more")
	}
	if cfg.Kubeconfig == "" {
		return nil, nil, errors.New("there is no --kubeconfig to write credentials to")
	}
	newest, pairErr := i.pairs.load(i.link.clock.Now())
	kubeconfig, user, err := readKubeconfig(cfg.Kubeconfig)
	lost := errors.Is(err, fs.ErrNotExist)
	interrupted := (lost || isUnreadable(err)) && newest != nil && cfg.BootstrapKubeconfig != ""
	if interrupted && newest.cert.Leaf.Subject.CommonName == commonName(cfg.NodeName) {
		kubeconfig, user, err = i.completeBootstrap(err)
	}
	if err != nil {
		return nil, nil, err
	}
	if newest != nil && i.prefersPair(newest, user) {
		user.ClientCertificate, user.ClientKey = "", ""
		user.ClientCertificateData, user.ClientKeyData = newest.pem, newest.pem
	} else if user.ClientCertificate == i.pairs.currentPath() {
		return nil, nil, fmt.Errorf("the client certificate of %s: %w", cfg.Kubeconfig, pairErr)
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	leaf, err := leafOf(config)
	if err != nil {
		return nil, nil, fmt.Errorf("the client certificate of %s: %w", cfg.Kubeconfig, err)
	}
	return config, leaf, nil
}

// completeBootstrap returns the kubeconfig of an interrupted bootstrap. It writes the kubeconfig if the file is missing.
func (i *identity) completeBootstrap(why error) (*api.Config, *api.AuthInfo, error) {
	cfg := i.link.cfg
	from, _, err := readKubeconfig(cfg.BootstrapKubeconfig)
	switch lost := errors.Is(why, fs.ErrNotExist); {
	case lost && err == nil:
		why = writeKubeconfig(cfg.Kubeconfig, from, i.pairs.currentPath())
	case lost:
		why = err
	}
	if why != nil { // the kubeconfig can be neither read nor written, so use the content that it would have
		i.warnUnread(why)
	}
	if err != nil {
		return nil, nil, err
	}
	return makeKubeconfig(from, i.pairs.currentPath())
}

// prefersPair reports whether the newest pair replaces the certificate of the kubeconfig. Usually it does, because a rotated pair was
// issued later than the certificate of the kubeconfig. If the kubeconfig has the later certificate, a user or program has put it there. The
// cluster may then have a new CA, and reject the pair. The certificate of the kubeconfig is therefore used until it expires.
func (i *identity) prefersPair(newest *pair, user *api.AuthInfo) bool {
	if user.ClientCertificate == i.pairs.currentPath() {
		return true
	}
	if !i.link.cfg.Rotate || (user.ClientCertificate == "" && len(user.ClientCertificateData) == 0) {
		return false
	}
	leaf, err := leafOfUser(user)
	if err != nil {
		return true
	}
	i.mu.Lock()
	given := leaf.NotBefore.After(newest.cert.Leaf.NotBefore) && (i.rejectedCert == nil || !leaf.Equal(i.rejectedCert))
	i.mu.Unlock()
	return newest.cert.Leaf.Subject.CommonName == leaf.Subject.CommonName && newest.cert.Leaf.NotAfter.After(leaf.NotAfter) && !given
}

// maxSleep is the maximum time between two checks of a certificate. A timer of several months would not react to a change of the clock.
const maxSleep = time.Hour

// ClientCertificate returns the node's client certificate, or nil if the node has none.
func (l *Link) ClientCertificate() *tls.Certificate {
	c, err := l.identity.restConfig()
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
