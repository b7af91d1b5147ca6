package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// selfSignedLife is the validity of a self-signed certificate, as in a kubelet.
	selfSignedLife = 365 * 24 * time.Hour
	// maxMoveInterval is the longest interval between two certificates of a node whose names change often.
	maxMoveInterval = time.Hour
)

// servingCert maintains the certificate of the node's own server. The certificate has one of three sources: files that another program
// manages, the control plane, or a self-signature. A certificate of the control plane is obtained in the background. The other
// certificates are read or created when a client connects.
type servingCert struct {
	link         *Link
	log          *slog.Logger
	pairs        pairFiles
	namesChanged chan struct{} // capacity 1; a value means that the names have changed

	failures        atomic.Uint64
	observeRotation atomic.Pointer[func(age time.Duration)] // nil if ObserveRotation was not called

	// The next fields are used only by run.

	renewals  retry.Pace // limits the renewals
	moves     retry.Pace // limits the renewals because of new names
	requested certNames  // names for which the last certificate was requested

	mu    sync.Mutex
	cert  *tls.Certificate // nil if the certificate is missing or not needed yet
	names certNames
}

func newServing(l *Link) *servingCert {
	s := &servingCert{
		link: l, log: l.cfg.Log, pairs: pairFiles{dir: l.cfg.CertDir, prefix: "kubelet-server"},
		namesChanged: make(chan struct{}, 1), names: certNames{ips: l.cfg.NodeIPs},
	}
	if l.cfg.Hostname != "" {
		s.names.dns = []string{l.cfg.Hostname}
	}
	return s
}

func (s *servingCert) setNames(n certNames) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.equals(s.names) {
		return
	}
	s.names = n
	signalChannel(s.namesChanged)
}

// filesChanged reads the certificate that another program manages. If the files are broken, it keeps the current certificate.
func (s *servingCert) filesChanged() {
	if s.link.cfg.TLSCertFile == "" {
		return
	}
	cert, err := tls.LoadX509KeyPair(s.link.cfg.TLSCertFile, s.link.cfg.TLSKeyFile)
	if err != nil {
		s.log.Warn("the serving certificate cannot be read", "error", err)
		return
	}
	s.set(&cert)
}

// set replaces the certificate and returns the former one. It returns nil if there was none, or if a request has loaded the same
// certificate from its file in the meantime.
func (s *servingCert) set(cert *tls.Certificate) (former *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, s.cert = s.cert, cert
	if former != nil && former.Leaf.Equal(cert.Leaf) {
		return nil
	}
	return former
}

func (s *servingCert) expiryTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cert == nil {
		return time.Time{}
	}
	return s.cert.Leaf.NotAfter
}

// currentCert returns the current certificate.
func (s *servingCert) currentCert() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := s.link.cfg
	switch {
	case cfg.TLSCertFile != "":
		if s.cert == nil {
			cert, err := tls.LoadX509KeyPair(cfg.TLSCertFile, cfg.TLSKeyFile)
			if err != nil {
				return nil, fmt.Errorf("serving certificate: %w", err)
			}
			s.cert = &cert
		}
	case cfg.ServerTLSBootstrap:
		if s.cert == nil {
			p, err := s.pairs.load(s.link.clock.Now())
			if err != nil {
				return nil, errors.New("there is no serving certificate yet: its signing request must be approved")
			}
			s.cert = p.cert
		}
	case s.cert == nil || s.isExpired(s.cert.Leaf):
		cert, err := s.selfSigned()
		if err != nil {
			return nil, fmt.Errorf("serving certificate: %w", err)
		}
		s.cert = cert
	}
	return s.cert, nil
}

func (s *servingCert) isExpired(leaf *x509.Certificate) bool {
	// A certificate is also unusable before its NotBefore. This time can be in the future if the clock was wrong when the certificate was
	// created.
	now := s.link.clock.Now()
	return now.After(leaf.NotAfter) || now.Before(leaf.NotBefore)
}

// selfSigned reads kubelet.crt and kubelet.key. It creates them if they are missing, have expired, or do not match each other (after a
// power cut).
func (s *servingCert) selfSigned() (*tls.Certificate, error) {
	certFile, keyFile := filepath.Join(s.pairs.dir, "kubelet.crt"), filepath.Join(s.pairs.dir, "kubelet.key")
	if cert, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && !s.isExpired(cert.Leaf) {
		return &cert, nil
	}
	certPEM, keyPEM, err := s.sign()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writeFile(keyFile, keyPEM), writeFile(certFile, certPEM)); err != nil {
		s.log.Warn("the self-signed certificate is not stored: the next start creates another one", "error", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	return &cert, err
}

func (s *servingCert) sign() (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	now := s.link.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s@%d", s.link.cfg.NodeName, now.Unix())},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              s.names.dns,
	}
	for _, ip := range s.names.ips {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// run obtains certificates from the control plane until ctx ends. It requests a new certificate before the current one expires, and when
// the current one lacks a name of the node.
func (s *servingCert) run(ctx context.Context) error {
	if p, err := s.pairs.load(s.link.clock.Now()); err == nil {
		s.set(p.cert)
	}
	again := retry.Backoff{FirstWindow: firstAttempt, MaxWindow: maxAttempt}
	for ctx.Err() == nil {
		wanted, wait := s.namesToRequest()
		if wait > 0 {
			again.Reset()
			sleep(ctx, wait, s.namesChanged)
			continue
		}
		if s.link.WaitUp(ctx) != nil {
			return nil
		}
		p, err := s.obtainServingCert(ctx, wanted)
		switch {
		case err == nil:
			former := s.set(p.cert)
			if f := s.observeRotation.Load(); f != nil && former != nil {
				(*f)(s.link.clock.Now().Sub(former.Leaf.NotBefore))
			}
			s.noteIssued(p.cert.Leaf, wanted)
		case ctx.Err() == nil && !errors.Is(err, errMoved):
			s.failures.Add(1)
			s.log.Warn("a serving certificate cannot be obtained from the control plane yet", "error", err)
			wait := again.Next(kube.RetryAfter(err))
			if errors.Is(err, errDenied) {
				wait = retry.Jitter(afterDenial)
			}
			sleep(ctx, wait, s.namesChanged)
		}
	}
	return nil
}

// noteIssued records that a certificate was received for the given names.
func (s *servingCert) noteIssued(leaf *x509.Certificate, wanted certNames) {
	longest := longestInterval(leaf)
	s.renewals.Succeeded(longest)
	if !wanted.equals(s.requested) {
		if len(s.requested.dns)+len(s.requested.ips) > 0 {
			s.moves.Succeeded(min(longest, maxMoveInterval))
		}
		s.requested = wanted
	}
	if coversNames(leaf, wanted) && s.link.clock.Now().Before(rotateAt(leaf)) {
		s.log.Info("the node has a serving certificate")
		return
	}
	s.failures.Add(1)
	s.log.Warn("the new serving certificate lacks a name of the node or is already due for renewal: another one is requested later")
}

// errMoved ends the wait for a certificate when the node's names have changed.
var errMoved = errors.New("the node's addresses changed")

func (s *servingCert) obtainServingCert(ctx context.Context, wanted certNames) (*pair, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.namesChanged:
			cancel(errMoved)
		case <-ctx.Done():
		}
	}()
	p, err := obtainPair(ctx, s.pairs, servingRequest(s.link.cfg.NodeName, wanted), s.link.client, s.link.clock, func(name string) {
		s.log.Info("the serving certificate waits for approval", "csr", name)
	}, nil)
	if err != nil && errors.Is(context.Cause(ctx), errMoved) {
		err = errMoved
	}
	cancel(nil)
	<-done
	return p, err
}

// namesToRequest returns the names for the certificate to request now. If no certificate is needed now, it returns the time until the next
// check.
func (s *servingCert) namesToRequest() (certNames, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names.dns)+len(s.names.ips) == 0 {
		return certNames{}, maxSleep
	}
	left := s.renewals.Left()
	switch {
	case s.cert == nil:
	case coversNames(s.cert.Leaf, s.names):
		left = max(left, rotateAt(s.cert.Leaf).Sub(s.link.clock.Now()))
	case !s.names.equals(s.requested):
		left = s.moves.Left()
	}
	if left > 0 {
		return certNames{}, min(left, maxSleep)
	}
	return s.names, 0
}

// coversNames reports whether a certificate is valid for all names.
func coversNames(leaf *x509.Certificate, n certNames) bool {
	covered := map[string]bool{}
	for _, d := range leaf.DNSNames {
		covered[d] = true
	}
	for _, ip := range leaf.IPAddresses {
		covered[ip.String()] = true
	}
	for _, d := range n.dns {
		if !covered[d] {
			return false
		}
	}
	for _, ip := range n.ips {
		if !covered[ip.Unmap().String()] {
			return false
		}
	}
	return true
}
