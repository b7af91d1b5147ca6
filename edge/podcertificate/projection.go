package podcertificate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/retry"
)

// Times that are visible in the cluster are the same as a kubelet's.
const (
	spread     = 5 * time.Minute  // spreads the renewals of pods that started at the same time
	overdue    = 10 * time.Minute // after beginRefreshAt
	checkEvery = 10 * time.Minute // maximum sleep, since the clock may jump
	retryMin   = time.Second      // first window after a failure, growing to
	retryMax   = time.Minute
)

// state is the stored part of a projection.
type state struct {
	Key, Chain     []byte // in PEM; nil if the certificate is not issued yet
	BeginRefreshAt time.Time
	NotAfter       time.Time

	Request    string // name of the open PodCertificateRequest; empty if there is none
	RequestKey []byte
}

// A projection is one podCertificate source of one pod. Only its goroutine changes it, and holds the
// Certificates' mu while it does.
type projection struct {
	store.CertificateKey
	state
	pod     *v1.Pod
	want    *v1.PodCertificateProjection
	early   time.Duration // random delay of the renewal after beginRefreshAt
	asked   chan struct{} // capacity 1: requests an attempt
	attempt chan struct{} // closed when there is a certificate, or an error
	stop    context.CancelFunc
	dropped bool

	err              error  // of the last attempt
	final            error  // the signer's final decision, and
	reason           string // its kind: Denied or Failed
	toldLate, toldEx bool   // the events were recorded
}

func newProjection(k store.CertificateKey, pod *v1.Pod, want *v1.PodCertificateProjection, s state) *projection {
	return &projection{
		CertificateKey: k, state: s, pod: pod, want: want, early: retry.Within(spread),
		asked: make(chan struct{}, 1), attempt: make(chan struct{}),
	}
}

func (p *projection) ask() {
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

// tell wakes all callers that wait for the first result.
func (p *projection) tell() {
	select {
	case <-p.attempt:
	default:
		close(p.attempt)
	}
}

func (p *projection) refreshAt() time.Time { return p.BeginRefreshAt.Add(p.early) }

// stateName returns the state's name in the kubelet's metric.
func (p *projection) stateName(now time.Time) string {
	switch {
	case p.final != nil && p.reason == "Denied":
		return "denied"
	case p.final != nil:
		return "failed"
	case p.Key == nil:
		return "not_yet_issued"
	case now.After(p.NotAfter):
		return "expired"
	case now.After(p.BeginRefreshAt.Add(overdue)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// follow obtains a certificate and renews it until ctx ends or the signer has refused.
func (c *Certificates) follow(ctx context.Context, p *projection) {
	again := retry.Backoff{First: retryMin, Soon: retryMax / 2, Most: retryMax}
	for {
		err := c.step(ctx, p)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		over := p.final != nil
		p.err = err
		if err != nil {
			p.tell()
		}
		c.mu.Unlock()
		if over {
			return
		}
		c.reportExpiry(p)
		var pause time.Duration
		if err != nil {
			c.cfg.Log.Debug("a certificate of a pod cannot be obtained", "pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID,
				"signer", p.want.SignerName, "error", err)
			pause = again.Next(kube.RetryAfter(err))
		} else {
			again.Reset()
			if p.Request == "" && p.Key != nil {
				pause = min(max(p.refreshAt().Sub(c.cfg.Now()), 0), checkEvery)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.asked:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// step does the next step of a projection, if there is one.
func (c *Certificates) step(ctx context.Context, p *projection) error {
	if p.Request != "" {
		return c.await(ctx, p, false)
	}
	if p.Key != nil && c.cfg.Now().Before(p.refreshAt()) {
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

// settle applies the result of an open request. done is false if there is none yet.
func (c *Certificates) settle(ctx context.Context, p *projection, r *certificatesv1beta1.PodCertificateRequest) (done bool) {
	for _, cond := range r.Status.Conditions {
		switch cond.Type {
		case certificatesv1beta1.PodCertificateRequestConditionTypeDenied:
			c.end(p, "Denied", fmt.Sprintf("PodCertificateRequest %s/%s was denied (%s): %s",
				r.Namespace, r.Name, cond.Reason, cond.Message))
			return true
		case certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			c.end(p, "Failed", fmt.Sprintf("PodCertificateRequest %s/%s failed (%s): %s", r.Namespace, r.Name, cond.Reason, cond.Message))
			return true
		case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			next := state{Key: p.RequestKey}
			var err error
			next.Chain, err = chainOf(r.Status.CertificateChain, p.RequestKey)
			if err == nil && (r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil) {
				err = errors.New("it does not say when it expires")
			}
			if err != nil {
				c.end(p, "Failed", fmt.Sprintf("PodCertificateRequest %s/%s: %s", r.Namespace, r.Name, err))
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

// end records the signer's decision that there will be no certificate.
func (c *Certificates) end(p *projection, reason, message string) {
	c.mu.Lock()
	p.final, p.reason = errors.New(message), reason
	p.tell()
	c.mu.Unlock()
	c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, reason, message)
	c.cfg.Changed(p.UID)
}

// set stores a state and then applies it.
func (c *Certificates) set(ctx context.Context, p *projection, next state) {
	data, err := json.Marshal(next)
	if err == nil {
		err = c.cfg.Store.PutCertificate(ctx, store.Certificate{CertificateKey: p.CertificateKey, State: data})
	}
	if err != nil && ctx.Err() == nil { // it is used without being stored
		c.cfg.Log.Error("a certificate of a pod could not be stored: it is missing after a restart without the API server",
			"pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	issued := next.Request == "" && next.Key != nil
	p.state = next
	if issued {
		p.early, p.toldLate, p.toldEx = retry.Within(spread), false, false
		p.tell()
	}
}

// reportExpiry records an event for a certificate that is overdue for renewal, and one for an
// expired certificate, each once.
func (c *Certificates) reportExpiry(p *projection) {
	if p.Key == nil {
		return
	}
	now := c.cfg.Now()
	if now.After(p.BeginRefreshAt.Add(overdue)) && !p.toldLate {
		p.toldLate = true
		c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(p.NotAfter) && !p.toldEx {
		p.toldEx = true
		c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}
