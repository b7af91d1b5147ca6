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

// Times are a kubelet's where a cluster sees them.
const (
	spread     = 5 * time.Minute  // of the renewals of pods that started together
	overdue    = 10 * time.Minute // after beginRefreshAt
	checkEvery = 10 * time.Minute // the clock may jump
	retryMin   = time.Second      // the window after a failure, growing to
	retryMax   = time.Minute
)

// state is what is stored of a projection.
type state struct {
	Key, Chain     []byte // PEM; none: nothing was issued yet
	BeginRefreshAt time.Time
	NotAfter       time.Time

	Request    string // the name of the open PodCertificateRequest; empty: there is none
	RequestKey []byte
}

// A projection is one podCertificate source of one pod. Its goroutine alone changes it, under
// the Certificates' mu.
type projection struct {
	store.CertificateKey
	state
	pod     *v1.Pod
	want    *v1.PodCertificateProjection
	early   time.Duration // until it is renewed after beginRefreshAt
	asked   chan struct{} // capacity 1: try now
	attempt chan struct{} // closed when there is something to tell: a certificate, or why not
	stop    context.CancelFunc
	dropped bool

	err              error  // why the last attempt failed
	over             error  // the signer's last word, and
	reason           string // its kind: Denied or Failed
	toldLate, toldEx bool   // events that were told
}

func newProjection(k store.CertificateKey, pod *v1.Pod, want *v1.PodCertificateProjection, s state) *projection {
	return &projection{CertificateKey: k, state: s, pod: pod, want: want, early: retry.Within(spread), asked: make(chan struct{}, 1), attempt: make(chan struct{})}
}

func (p *projection) ask() {
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

// tell lets those go on who wait.
func (p *projection) tell() {
	select {
	case <-p.attempt:
	default:
		close(p.attempt)
	}
}

func (p *projection) refreshAt() time.Time { return p.BeginRefreshAt.Add(p.early) }

// named gives the kubelet's name for how a projection is.
func (p *projection) named(now time.Time) string {
	switch {
	case p.over != nil && p.reason == "Denied":
		return "denied"
	case p.over != nil:
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

// follow gets a certificate and renews it until ctx ends or the signer has refused.
func (c *Certificates) follow(ctx context.Context, p *projection) {
	again := retry.Backoff{First: retryMin, Soon: retryMax / 2, Most: retryMax}
	for {
		err := c.step(ctx, p)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		over := p.over != nil
		if p.err = err; err != nil {
			p.tell()
		}
		c.mu.Unlock()
		if over {
			return
		}
		c.late(p)
		var pause time.Duration
		if err != nil {
			c.cfg.Log.Debug("a certificate of a pod cannot be had", "pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID, "signer", p.want.SignerName, "error", err)
			pause = again.Next(kube.RetryAfter(err))
		} else if again.Reset(); p.Request == "" && p.Key != nil {
			pause = min(max(p.refreshAt().Sub(c.cfg.Now()), 0), checkEvery)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.asked:
		case <-ctx.Done():
		}
		if timer.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// step brings a projection further, if there is anything to do.
func (c *Certificates) step(ctx context.Context, p *projection) error {
	if p.Request != "" {
		return c.await(ctx, p, false)
	}
	if p.Key != nil && c.cfg.Now().Before(p.refreshAt()) {
		return nil
	}
	if err := c.name(ctx, p); err != nil {
		return err
	}
	if err := c.create(ctx, p); err != nil {
		return err
	}
	return c.await(ctx, p, true)
}

// settle makes what an open request says the projection's. It is false while it says nothing.
func (c *Certificates) settle(ctx context.Context, p *projection, r *certificatesv1beta1.PodCertificateRequest) (done bool) {
	for _, cond := range r.Status.Conditions {
		switch cond.Type {
		case certificatesv1beta1.PodCertificateRequestConditionTypeDenied:
			c.end(p, "Denied", fmt.Sprintf("PodCertificateRequest %s/%s was denied (%s): %s", r.Namespace, r.Name, cond.Reason, cond.Message))
			return true
		case certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			c.end(p, "Failed", fmt.Sprintf("PodCertificateRequest %s/%s failed (%s): %s", r.Namespace, r.Name, cond.Reason, cond.Message))
			return true
		case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			next := state{Key: p.RequestKey}
			var err error
			if next.Chain, err = chainOf(r.Status.CertificateChain, p.RequestKey); err == nil && (r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil) {
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

// end takes the signer's word that there will be no certificate.
func (c *Certificates) end(p *projection, reason, message string) {
	c.mu.Lock()
	p.over, p.reason = errors.New(message), reason
	p.tell()
	c.mu.Unlock()
	c.cfg.Events.Pod(p.pod, "", v1.EventTypeWarning, reason, message)
	c.cfg.Changed(p.UID)
}

// set stores a state, and has it be so then.
func (c *Certificates) set(ctx context.Context, p *projection, next state) {
	data, err := json.Marshal(next)
	if err == nil {
		err = c.cfg.Store.PutCertificate(ctx, store.Certificate{CertificateKey: p.CertificateKey, State: data})
	}
	if err != nil && ctx.Err() == nil { // better used than not
		c.cfg.Log.Error("a certificate of a pod could not be stored: a restart without the API server would lack it", "pod", p.pod.Namespace+"/"+p.pod.Name, "uid", p.UID, "error", err)
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

// late tells once of a certificate that should have been renewed, and once of one that has
// expired.
func (c *Certificates) late(p *projection) {
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
