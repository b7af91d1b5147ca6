package podcertificate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/retry"
)

// These times have an effect in the cluster. A kubelet uses the same times.
const (
	renewalSpread = 5 * time.Minute  // spreads the renewals of pods that started at the same time
	overdueAfter  = 10 * time.Minute // after beginRefreshAt
	checkEvery    = 10 * time.Minute // maximum sleep, because the clock may jump
	retryMin      = time.Second      // window of the first retry
	retryMax      = time.Minute
)

// state is the stored part of a projection.
type state struct {
	Key, Chain     []byte // in PEM; nil if the certificate is not issued yet
	BeginRefreshAt time.Time
	NotAfter       time.Time

	Request    string // name of the open PodCertificateRequest; empty if no request is open
	RequestKey []byte
}

// A projection is one podCertificate source of one pod. Each projection has a goroutine. Only this goroutine changes the projection, and it
// holds the mu of Certificates for that.
type projection struct {
	store.CertificateKey
	state
	pod              *v1.Pod
	wantedProjection *v1.PodCertificateProjection
	renewalDelay     time.Duration // random delay of the renewal after beginRefreshAt
	issuedPace       retry.Pace    // limits renewals that are due at once, for example because the clock is wrong
	attemptRequest   chan struct{} // capacity 1; a value requests an attempt
	firstResult      chan struct{} // closed when the first certificate or error is known
	stop             context.CancelFunc
	dropped          bool

	err                           error  // error of the last attempt
	finalError                    error  // the final decision of the signer
	reason                        string // kind of the final decision: Denied or Failed
	reportedLate, reportedExpired bool   // true after the event for it was recorded
}

func newProjection(k store.CertificateKey, pod *v1.Pod, want *v1.PodCertificateProjection, s state) *projection {
	return &projection{
		CertificateKey: k, state: s, pod: pod, wantedProjection: want, renewalDelay: retry.RandomWait(renewalSpread),
		attemptRequest: make(chan struct{}, 1), firstResult: make(chan struct{}),
	}
}

func (p *projection) requestAttempt() {
	select {
	case p.attemptRequest <- struct{}{}:
	default:
	}
}

// finishAttempt wakes all callers that wait for the first result.
func (p *projection) finishAttempt() {
	select {
	case <-p.firstResult:
	default:
		close(p.firstResult)
	}
}

func (p *projection) refreshAt() time.Time { return p.BeginRefreshAt.Add(p.renewalDelay) }

// untilRenewal returns the time until the certificate must be renewed.
func (p *projection) untilRenewal(clock time.Time) time.Duration {
	return max(p.refreshAt().Sub(clock), p.issuedPace.Left(time.Now()))
}

// stateName returns the name of the state in the kubelet's metric.
func (p *projection) stateName(now time.Time) string {
	switch {
	case p.finalError != nil && p.reason == "Denied":
		return "denied"
	case p.finalError != nil:
		return "failed"
	case p.Key == nil:
		return "not_yet_issued"
	case now.After(p.NotAfter):
		return "expired"
	case now.After(p.BeginRefreshAt.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// maintainCertificate obtains and renews a certificate until ctx ends or the signer refuses.
func (c *Certificates) maintainCertificate(ctx context.Context, p *projection) {
	again := retry.Backoff{FirstWindow: retryMin, SecondWindow: retryMax / 2, MaxWindow: retryMax}
	for {
		err := c.executeStep(ctx, p)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		isFinal := p.finalError != nil
		p.err = err
		if err != nil {
			p.finishAttempt()
		}
		c.mu.Unlock()
		if isFinal {
			return
		}
		c.reportExpiry(p)
		var pause time.Duration
		if err != nil {
			c.cfg.Log.Debug("a certificate of a pod cannot be obtained", "pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID,
				"signer", p.wantedProjection.SignerName, "error", err)
			pause = again.Next(kube.RetryAfter(err))
		} else {
			again.Reset()
			if p.Request == "" && p.Key != nil {
				pause = min(p.untilRenewal(c.cfg.Now()), checkEvery)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.attemptRequest:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// executeStep executes the next step of a projection: it creates a request, or waits for the answer. It does nothing while no step is due.
func (c *Certificates) executeStep(ctx context.Context, p *projection) error {
	if p.Request != "" {
		return c.await(ctx, p, false)
	}
	if p.Key != nil && p.untilRenewal(c.cfg.Now()) > 0 {
		return nil
	}
	if err := c.newRequest(ctx, p); err != nil {
		return err
	}
	if err := c.create(ctx, p); err != nil {
		return err
	}
	return c.await(ctx, p, true)
}

// applyResult applies the result of an open request. It returns false if there is no result yet.
func (c *Certificates) applyResult(ctx context.Context, p *projection, r *certificatesv1.PodCertificateRequest) (done bool) {
	for _, cond := range r.Status.Conditions {
		switch cond.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			c.recordRefusal(p, "Denied", fmt.Sprintf("PodCertificateRequest %s/%s was denied (%s): %s",
				r.Namespace, r.Name, cond.Reason, cond.Message))
			return true
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			c.recordRefusal(p, "Failed", fmt.Sprintf("PodCertificateRequest %s/%s failed (%s): %s", r.Namespace, r.Name,
				cond.Reason, cond.Message))
			return true
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			next := state{Key: p.RequestKey}
			var err error
			next.Chain, err = chainOf(r.Status.CertificateChain, p.RequestKey)
			if err == nil && (r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil) {
				err = errors.New("it has no beginRefreshAt or notAfter")
			}
			if err != nil {
				c.recordRefusal(p, "Failed", fmt.Sprintf("PodCertificateRequest %s/%s: %s", r.Namespace, r.Name, err))
				return true
			}
			next.BeginRefreshAt, next.NotAfter = r.Status.BeginRefreshAt.Time, r.Status.NotAfter.Time
			c.set(ctx, p, next)
			c.cfg.Changed(p.UID)
			return true
		}
	}
	return false
}

// recordRefusal records that the signer will not issue a certificate.
func (c *Certificates) recordRefusal(p *projection, reason, message string) {
	c.mu.Lock()
	p.finalError, p.reason = errors.New(message), reason
	p.finishAttempt()
	c.mu.Unlock()
	c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, reason, message)
	c.cfg.Changed(p.UID)
}

// set stores a new state and makes it the current one.
func (c *Certificates) set(ctx context.Context, p *projection, next state) {
	data, err := json.Marshal(next)
	if err == nil {
		err = c.cfg.Store.PutCertificate(ctx, store.Certificate{CertificateKey: p.CertificateKey, State: data})
	}
	if err != nil && ctx.Err() == nil { // the certificate is used although it was not stored
		c.cfg.Log.Error("a certificate of a pod could not be stored yet: until then it is missing after a restart without the API server",
			"pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	issued := next.Request == "" && next.Key != nil
	p.state = next
	if issued {
		p.renewalDelay, p.reportedLate, p.reportedExpired = retry.RandomWait(renewalSpread), false, false
		// A quarter of the time between the refresh and the expiry: the interval never lets a certificate expire.
		p.issuedPace.Succeeded(time.Now(), next.NotAfter.Sub(next.BeginRefreshAt)/4)
		p.finishAttempt()
	}
}

// reportExpiry records an event when a certificate is overdue for renewal, and another event when it has expired. It records each event
// once.
func (c *Certificates) reportExpiry(p *projection) {
	if p.Key == nil {
		return
	}
	now := c.cfg.Now()
	if now.After(p.BeginRefreshAt.Add(overdueAfter)) && !p.reportedLate {
		p.reportedLate = true
		c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(p.NotAfter) && !p.reportedExpired {
		p.reportedExpired = true
		c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}
