package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// Timeouts of a probe while no data arrives. Some round trips are added to them. probeOld is for an existing connection. probeNew is
	// for a new connection, which needs name resolution and handshakes.
	probeOld = 5 * time.Second
	probeNew = 15 * time.Second
	// stableTime is the time for which the link must be up before the back-off is reset.
	stableTime = 10 * time.Second
	// doubtTime is the time after a successful probe during which suspicious answers are ignored.
	doubtTime     = 10 * time.Second
	logInterval   = time.Minute // minimum interval between log messages
	probeInterval = time.Second // minimum interval between probes of a link that goes up and down

	firstRetry = time.Second
	maxRetry   = 2 * time.Minute // maximum back-off, reached after an outage of about an hour
	// maximum back-off while the server or the node rejects the other's certificate or credentials; each attempt costs a handshake
	maxRefused = 30 * time.Second
)

// health determines the state of the link.
type health struct {
	client     *kube.Client
	clock      *clock
	states     *states
	identity   *identity
	network    <-chan struct{}
	duplicates DuplicateDetector // if nil, every machine may use the node's name
	log        *slog.Logger

	suspicion    chan struct{}   // capacity 1
	retryRequest chan struct{}   // capacity 1; a value requests an attempt
	credentials  <-chan struct{} // a value means that the credentials have changed
	logged       probeFailure    // the last logged failure; zero if the link is up
	loggedAt     time.Time
}

func newHealth(l *Link) *health {
	return &health{
		client: l.client, clock: l.clock, states: l.states, identity: l.identity, network: l.cfg.NetworkChanged,
		duplicates: l.cfg.Duplicates, log: l.cfg.Log, suspicion: make(chan struct{}, 1), retryRequest: make(chan struct{}, 1),
		credentials: l.identity.changed, logged: probeFailure{reason: ReasonNoCredentials},
	}
}

// evaluateResult evaluates the result of a request of the client.
func (h *health) evaluateResult(status int, err error) {
	switch {
	case err != nil && !errors.Is(err, kube.ErrNotServer):
		h.log.Debug("a request was not answered: the API server is probed", "error", err)
		signalChannel(h.suspicion)
	case err != nil: // some proxies answer some paths themselves
		if s, _ := h.states.get(); s.Phase != Up || time.Since(s.Since) > doubtTime {
			signalChannel(h.suspicion)
		}
	case status == http.StatusUnauthorized, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		if s, _ := h.states.get(); s.Phase != Up || time.Since(s.Since) > doubtTime {
			signalChannel(h.suspicion)
		}
	}
}

// probeFailure is the reason why a probe failed.
type probeFailure struct {
	reason, message string
	maxBackoff      time.Duration // maximum back-off; 0 means to wait for new credentials
	wait            time.Duration // minimum back-off: the server's Retry-After
	probeAgain      bool          // probe again immediately
}

func (h *health) run(ctx context.Context) error {
	again := retry.Backoff{FirstWindow: firstRetry, MaxWindow: maxRetry}
	h.states.set(State{Phase: Connecting, Reason: ReasonUnreachable, Message: "the server has not answered yet"})
	for ctx.Err() == nil {
		began := time.Now()
		h.dropSignals()
		t := h.probeServer(ctx, probeOld)
		if t != nil && ctx.Err() == nil && t.reason == ReasonUnreachable {
			h.client.CloseConnections() // the peer of these connections may no longer exist
			t = h.probeServer(ctx, probeNew)
		}
		if t == nil {
			t = h.checkAdmission(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if t == nil {
			h.waitAfterSuspicion(ctx, &again, began)
			continue
		}
		h.handleFailure(ctx, t, &again)
	}
	return nil
}

// checkAdmission returns a failure if another machine has the name of this node. Then this machine must not use the link although the
// server answers.
func (h *health) checkAdmission(ctx context.Context) *probeFailure {
	if h.duplicates == nil {
		return nil
	}
	why, wait, err := h.duplicates.CheckOwner(kube.WithSilenceTimeout(ctx, probeNew), h.client)
	switch {
	case err != nil:
		return troubleOf(err)
	case why != "":
		h.client.CloseConnections() // ends existing watches
		return &probeFailure{reason: ReasonDuplicate, message: why, maxBackoff: probeInterval, wait: wait}
	}
	return nil
}

// dropSignals drops all waiting signals, because the next probe checks everything that they announce.
func (h *health) dropSignals() {
	for _, c := range []<-chan struct{}{h.suspicion, h.credentials, h.network, h.retryRequest} {
		select {
		case <-c:
		default:
		}
	}
}

// waitAfterSuspicion waits for a suspicion while the link is up. It returns at the earliest a second after the last probe.
func (h *health) waitAfterSuspicion(ctx context.Context, again *retry.Backoff, probed time.Time) {
	h.states.set(State{Phase: Up})
	h.logChange(probeFailure{})
	since := time.Now()
	for suspected := false; !suspected; {
		select {
		case <-ctx.Done():
			return
		case <-h.network: // the routes of connections may have changed
			suspected = !h.stillAnswers(ctx)
		case <-h.credentials:
			suspected = true
		case <-h.suspicion:
			suspected = true
		case <-h.clock.claimedSignal: // leaves the select, so that the loop calls askTime again
		case <-h.askTime():
			if t := h.probeOnce(ctx, probeNew, h.client.ReadyAnew); t != nil && t.reason == ReasonUnreachable {
				suspected = true
			}
		}
	}
	if time.Since(since) >= stableTime {
		again.Reset()
	} else if !sleep(ctx, min(max(again.Next(0), probeInterval), stableTime)-time.Since(probed)) {
		return
	}
	h.states.set(State{Phase: Connecting, Reason: ReasonUnreachable, Message: "a request was not answered"})
}

// stillAnswers probes the server after a change of the network. The state stays Up during the probe, because most changes do not affect the
// connection to the server.
func (h *health) stillAnswers(ctx context.Context) bool {
	t := h.probeServer(ctx, probeOld)
	if t == nil {
		sleep(ctx, probeInterval)
		return true
	}
	if t.reason == ReasonUnreachable && ctx.Err() == nil {
		h.client.CloseConnections()
	}
	return false
}

func (h *health) handleFailure(ctx context.Context, t *probeFailure, again *retry.Backoff) {
	h.states.set(State{Phase: Down, Reason: t.reason, Message: t.message})
	h.logChange(*t)
	if t.maxBackoff == 0 {
		select {
		case <-h.credentials:
		case <-h.retryRequest:
		case <-ctx.Done():
		}
		return
	}
	again.MaxWindow = t.maxBackoff
	wait := again.Next(t.wait)
	if unsure := h.clock.askAgainAfter(); unsure > 0 {
		wait = max(min(wait, unsure), t.wait)
	}
	h.clock.sleep(ctx, wait, h.network, h.credentials, h.retryRequest)
}

// logChange logs a change of the link. It logs at most once a minute, because the link may go up and down often.
func (h *health) logChange(t probeFailure) {
	if t.reason == h.logged.reason || (!h.loggedAt.IsZero() && time.Since(h.loggedAt) < logInterval) {
		return
	}
	h.logged, h.loggedAt = t, time.Now()
	if t.reason == "" {
		h.log.Info("the API server answers")
		return
	}
	h.log.Warn("no link to the API server", "reason", t.reason, "error", t.message)
}

// askTime returns a channel that receives a value when the node should request the server's time again. It returns nil if no such request
// is needed.
func (h *health) askTime() <-chan time.Time {
	if wait := h.clock.askAgainAfter(); wait > 0 {
		return time.After(wait)
	}
	return nil
}

// probeServer sends GET /readyz. It returns nil if the server accepts this node. If a certificate has corrected the clock, the request is
// repeated immediately.
func (h *health) probeServer(ctx context.Context, within time.Duration) (t *probeFailure) {
	ready := h.client.Ready
	if h.clock.askAgainAfter() > 0 {
		ready = h.client.ReadyAnew
	}
	for range certificateTries {
		t = h.probeOnce(ctx, within, ready)
		if t == nil || !t.probeAgain {
			return t
		}
	}
	return t
}

// certificateTries is the maximum number of attempts of a probe. The server's certificate may correct the clock, and the node's certificate
// may then correct it again.
const certificateTries = 3

func (h *health) probeOnce(ctx context.Context, within time.Duration, ready func(context.Context) (kube.Answer, error)) *probeFailure {
	cfg, err := h.identity.restConfig()
	if err != nil {
		var no *noCredentials
		if errors.As(err, &no) {
			return &probeFailure{reason: no.reason, message: no.message}
		}
		return &probeFailure{reason: ReasonNoCredentials, message: err.Error()}
	}
	a, err := ready(kube.WithSilenceTimeout(ctx, within))
	if err != nil {
		t := troubleOf(err)
		if t.reason == ReasonServerCertificate {
			t.message += "; if the cluster has a new CA, replace " + h.identity.link.cfg.Kubeconfig + " with a kubeconfig that has this CA"
		}
		t.probeAgain = h.clock.evaluateCertError(err, cfg)
		return t
	}
	if !a.Date.IsZero() && !a.CertificateEnd.IsZero() {
		h.clock.evaluateDate(a.Date, a.CertificateEnd, a.NewConnection)
	}
	switch {
	case a.Status == http.StatusUnauthorized:
		reason, message := h.identity.whyRefused()
		return &probeFailure{reason: reason, message: message, maxBackoff: maxRefused, wait: a.RetryAfter}
	case a.Status == http.StatusTooManyRequests, a.Status >= http.StatusInternalServerError:
		message := fmt.Sprintf("%s answers %d %s", cfg.Host, a.Status, http.StatusText(a.Status))
		return &probeFailure{reason: ReasonNotReady, message: message, maxBackoff: maxRetry, wait: a.RetryAfter}
	}
	return nil // the server is ready, or it is an API server that does not reveal its health
}

func troubleOf(err error) *probeFailure {
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		return &probeFailure{reason: ReasonServerCertificate, message: err.Error(), maxBackoff: maxRefused}
	}
	message := err.Error()
	var requested *url.Error
	if errors.As(err, &requested) {
		message = requested.URL + ": " + requested.Err.Error()
	}
	if errors.Is(err, kube.ErrNotServer) {
		return &probeFailure{reason: ReasonNotServer, message: message, maxBackoff: maxRetry}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		message += " (no answer)"
	}
	return &probeFailure{reason: ReasonUnreachable, message: message, maxBackoff: maxRetry}
}

// evaluateCertError evaluates a server's certificate that was rejected because of the time. It returns true if the certificate has
// corrected the clock. Only a certificate that the cluster's CA has signed can do this. A NotBefore later than Now becomes the hint. A
// certificate that seems to have expired may show that an earlier hint was wrong.
func (c *clock) evaluateCertError(err error, cfg *rest.Config) bool {
	var invalid *tls.CertificateVerificationError
	if !errors.As(err, &invalid) || len(invalid.UnverifiedCertificates) == 0 || len(cfg.CAData) == 0 {
		return false
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	leaf := invalid.UnverifiedCertificates[0]
	for _, cert := range invalid.UnverifiedCertificates[1:] {
		chain.AddCert(cert)
	}
	o := x509.VerifyOptions{
		Roots: roots, Intermediates: chain, CurrentTime: leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if _, err := leaf.Verify(o); err != nil {
		return false
	}
	before := c.Now()
	if leaf.NotBefore.After(before) {
		c.recordHint(leaf.NotBefore)
		return c.Now().After(before)
	}
	return c.checkHint(leaf.NotBefore, leaf.NotAfter)
}
