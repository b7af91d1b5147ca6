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
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
)

const (
	probeOld = 5 * time.Second  // on connections that exist
	probeNew = 15 * time.Second // with name resolution and handshakes over a slow link
	// stable is how long a link is up before its troubles count as over.
	stable = 10 * time.Second
	// doubt is how long a good probe outweighs answers that make suspicious.
	doubt = 10 * time.Second
	quiet = time.Minute // between lines of the log

	firstRetry  = time.Second
	mostRetry   = 10 * time.Second // an attempt is a packet or two
	mostRefused = 30 * time.Second // while one side does not accept the other: each is a handshake for both
)

// health settles whether the server answers.
type health struct {
	client   *kube.Client
	clock    *clock
	states   *states
	identity *identity
	network  <-chan struct{}
	log      *slog.Logger

	suspicion   chan struct{}   // capacity 1
	credentials <-chan struct{} // they changed
	told        trouble         // what the log last said; zero: that the link is up
	toldAt      time.Time
}

func newHealth(l *Link) *health {
	return &health{
		client: l.client, clock: l.clock, states: l.states, identity: l.identity, network: l.cfg.NetworkChanged, log: l.cfg.Log,
		suspicion: make(chan struct{}, 1), credentials: l.identity.changed, told: trouble{reason: ReasonNoCredentials},
	}
}

// after hears how every request of the client ended.
func (h *health) after(status int, err error) {
	switch {
	case err != nil:
		poke(h.suspicion)
	case status == http.StatusUnauthorized, status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		if s, _ := h.states.get(); s.Phase != Up || time.Since(s.Since) > doubt {
			poke(h.suspicion)
		}
	}
}

// trouble is why a probe failed.
type trouble struct {
	reason, message string
	most            time.Duration // bound of the back-off; 0: only a change helps
	wait            time.Duration // at least, as the server asked
}

func (h *health) run(ctx context.Context) error {
	retry := backoff{first: firstRetry, most: mostRetry}
	h.states.set(State{Phase: Connecting, Reason: ReasonUnreachable, Message: "the server has not answered yet"})
	for ctx.Err() == nil {
		began := time.Now()
		h.forget()
		t := h.probe(ctx, probeOld)
		if t != nil && ctx.Err() == nil && t.reason == ReasonUnreachable {
			h.client.CloseConnections() // they may lead nowhere
			t = h.probe(ctx, probeNew)
		}
		if ctx.Err() != nil {
			return nil
		}
		if t == nil {
			h.up(ctx, &retry, began)
			continue
		}
		h.down(ctx, t, &retry)
	}
	return nil
}

// forget drops the signals of before a probe, which sees what they are about.
func (h *health) forget() {
	for _, c := range []<-chan struct{}{h.suspicion, h.credentials, h.network} {
		select {
		case <-c:
		default:
		}
	}
}

// up is until there is a suspicion. Probes are a second apart at least.
func (h *health) up(ctx context.Context, retry *backoff, probed time.Time) {
	h.states.set(State{Phase: Up})
	h.tell(trouble{})
	since := time.Now()
	for suspected := false; !suspected; {
		select {
		case <-ctx.Done():
			return
		case <-h.network: // connections may have lost their way
			suspected = true
		case <-h.credentials:
			suspected = true
		case <-h.suspicion:
			suspected = true
		}
	}
	if time.Since(since) >= stable {
		retry.reset()
	} else if !sleep(ctx, max(retry.next()-time.Since(probed), 0)) {
		return
	}
	h.states.set(State{Phase: Connecting, Reason: ReasonUnreachable, Message: "a request was not answered"})
}

func (h *health) down(ctx context.Context, t *trouble, retry *backoff) {
	h.states.set(State{Phase: Down, Reason: t.reason, Message: t.message})
	h.tell(*t)
	if t.most == 0 {
		select {
		case <-h.credentials:
		case <-ctx.Done():
		}
		return
	}
	retry.most = t.most
	sleep(ctx, max(retry.next(), t.wait), h.network, h.credentials)
}

// tell logs what is new; a link that flaps gets a line a minute.
func (h *health) tell(t trouble) {
	if t.reason == h.told.reason || (!h.toldAt.IsZero() && time.Since(h.toldAt) < quiet) {
		return
	}
	h.told, h.toldAt = t, time.Now()
	if t.reason == "" {
		h.log.Info("the API server answers")
		return
	}
	h.log.Warn("no link to the API server", "reason", t.reason, "error", t.message)
}

// probe asks the server whether it is ready; nil: it is there for this node.
func (h *health) probe(ctx context.Context, within time.Duration) *trouble {
	cfg, err := h.identity.rest()
	if err != nil {
		var no *noCredentials
		if errors.As(err, &no) {
			return &trouble{reason: no.reason, message: no.message}
		}
		return &trouble{reason: ReasonNoCredentials, message: err.Error()}
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	a, err := h.client.Ready(limited)
	if err != nil {
		if h.clock.learn(err, cfg) {
			return h.probe(ctx, within)
		}
		return unanswered(err)
	}
	if !a.Date.IsZero() && !cfg.Insecure && strings.HasPrefix(cfg.Host, "https://") {
		h.clock.prove(a.Date)
	}
	switch {
	case a.Status == http.StatusUnauthorized:
		reason, message := h.identity.refused()
		return &trouble{reason: reason, message: message, most: mostRefused, wait: a.RetryAfter}
	case a.Status == http.StatusTooManyRequests, a.Status >= http.StatusInternalServerError:
		return &trouble{reason: ReasonNotReady, message: fmt.Sprintf("%s answers %d %s", cfg.Host, a.Status, http.StatusText(a.Status)), most: mostRetry, wait: min(a.RetryAfter, time.Minute)}
	}
	return nil // ready, or at least there: it may keep its health to itself
}

func unanswered(err error) *trouble {
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		return &trouble{reason: ReasonServerCertificate, message: err.Error(), most: mostRefused}
	}
	message := err.Error()
	var requested *url.Error
	if errors.As(err, &requested) {
		message = requested.URL + ": " + requested.Err.Error()
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		message += " (no answer)"
	}
	return &trouble{reason: ReasonUnreachable, message: message, most: mostRetry}
}

// learn looks at a server's certificate that was refused for not being valid yet. When
// its chain leads to the cluster's CA, that CA says that this time has come; it tells
// whether that was news.
func (c *clock) learn(err error, cfg *rest.Config) bool {
	var invalid *tls.CertificateVerificationError
	if !errors.As(err, &invalid) || len(invalid.UnverifiedCertificates) == 0 || len(cfg.CAData) == 0 {
		return false
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	leaf := invalid.UnverifiedCertificates[0]
	begins := leaf.NotBefore
	for _, cert := range invalid.UnverifiedCertificates[1:] {
		chain.AddCert(cert)
	}
	if !begins.After(c.Now()) {
		return false
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: begins, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return false
	}
	c.prove(begins)
	return true
}
