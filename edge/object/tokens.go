package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/retry"
)

// Times for refreshing tokens, as in a kubelet. See
// https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#launch-a-pod-using-service-account-token-projection.
const (
	maxTokenAge = 24 * time.Hour   // maximum age of a token before it is refreshed
	jitterParts = 40               // the refresh is earlier by a random time up to lifetime/jitterParts
	checkEvery  = 10 * time.Minute // maximum sleep, because the clock may jump
	refusedMin  = 30 * time.Second // first pause after the server has refused a token; it doubles up to the maximum
	refusedMax  = 10 * time.Minute
	maxSkew     = 5 * time.Minute // tolerated difference between clocks
)

// A token is a service account token of a pod, together with the state of its requests.
type token struct {
	store.Token  // empty until the token is known
	pod          podName
	err          error
	failures     int
	backoff      retry.Backoff
	retryTime    time.Time     // after a failure, no attempt before this time
	due          time.Time     // monotonic time of the refresh; zero if the token is missing, or was issued before the agent started
	early        time.Duration // random time by which the refresh is earlier
	requestEnded chan struct{} // closed at the end of the request in flight; nil if no request is in flight
}

type podName struct{ namespace, name, account string }

// tokens manages the tokens of all pods.
type tokens struct {
	client    *kube.Client
	store     Store
	notifyPod func(types.UID)
	now       func() time.Time
	log       *slog.Logger
	wake      chan struct{} // capacity 1; a value means that a token may be due

	mu          sync.Mutex
	pausedUntil time.Time // no request before this time, because the server could not be reached
	retryAfter  time.Time // no request before this time (the server's Retry-After), even if the link is up again
	missed      retry.Backoff
	list        map[store.TokenKey]*token
	loaded      map[store.TokenKey]store.Token // stored tokens that no pod has requested yet
}

func newTokens(cfg *Config) *tokens {
	return &tokens{
		client: cfg.Client, store: cfg.Store, notifyPod: cfg.Changed, now: cfg.Now, log: cfg.Log,
		missed: newRetry(), wake: make(chan struct{}, 1), list: map[store.TokenKey]*token{}, loaded: map[store.TokenKey]store.Token{},
	}
}

// Token returns the token of a projection. If the last issued token has expired, it returns the expired token.
func (c *Cache) Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error) {
	t := c.tokens
	k := tokenKey(pod, p)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch has := t.list[k]; {
	case has != nil && has.Token.Token != "":
		return has.Token.Token, nil
	case has != nil && has.err != nil:
		return "", has.err
	}
	return "", fmt.Errorf("service account token for audience %q: %w", p.Audience, errUnread)
}

func (t *tokens) load(stored []store.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range stored {
		t.loaded[s.TokenKey] = s
	}
}

// register records the tokens that a pod needs. If request is true, a missing token is requested immediately, because Prepare may not be
// called for a long time.
func (t *tokens) register(pod *v1.Pod, keys map[store.TokenKey]bool, request bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range keys {
		if t.list[k] != nil {
			continue
		}
		n := &token{
			Token: store.Token{TokenKey: k}, backoff: newRetry(),
			pod: podName{pod.Namespace, pod.Name, cmp.Or(pod.Spec.ServiceAccountName, "default")},
		}
		if s, ok := t.loaded[k]; ok {
			n.Token, n.early = s, randomJitter(s)
			delete(t.loaded, k)
		} else if request {
			n.err = fmt.Errorf("service account token for audience %q: %w", k.Audience, errUnread)
		}
		t.list[k] = n
	}
	t.wakeRun()
}

func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.list {
		if k.UID == uid {
			delete(t.list, k)
		}
	}
}

// retry permits an immediate retry of all failed requests. It also makes run check all tokens again, because the clock may have been set.
func (t *tokens) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.list {
		n.retryTime = time.Time{}
	}
	t.pausedUntil = t.retryAfter
	t.wakeRun()
}

func (t *tokens) wakeRun() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func tokenLifetime(s store.Token) time.Duration { return s.Expires.Sub(s.Issued) }

func randomJitter(s store.Token) time.Duration { return rand.N(max(tokenLifetime(s)/jitterParts, 1)) }

// refreshAt returns the time at which a token should be replaced.
func (n *token) refreshAt() time.Time {
	return n.Issued.Add(min(tokenLifetime(n.Token)*8/10, maxTokenAge) - n.early)
}

// untilRequest returns the time until a token should be requested. If the wall clock shows a time before the time of issue, it is wrong,
// and the monotonic clock is used instead.
func (n *token) untilRequest(clock time.Time) time.Duration {
	var wait time.Duration
	behind := clock.Before(n.Issued.Add(-maxSkew))
	switch {
	case n.Token.Token == "" || behind && n.due.IsZero():
	case n.due.IsZero():
		wait = n.refreshAt().Sub(clock)
	case behind:
		wait = time.Until(n.due)
	default: // the monotonic clock stops while the machine sleeps, and the wall clock may be wrong
		soonest := n.due.Add(-tokenLifetime(n.Token) * 7 / 10)
		wait = min(time.Until(n.due), max(n.refreshAt().Sub(clock), time.Until(soonest)))
	}
	return max(wait, time.Until(n.retryTime), 0)
}

// run refreshes tokens when they are due, in the order of their expiry.
func (t *tokens) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		for _, k := range t.dueKeys() {
			err := t.obtainToken(ctx, k, true)
			if ctx.Err() != nil {
				return
			}
			if !t.recordReached(err) {
				break // the other requests would fail, too
			}
		}
		timer.Reset(t.timeUntilDue())
	}
}

// recordReached reports whether the server could be reached. If the server could not be reached, recordReached sets a pause for all
// requests.
func (t *tokens) recordReached(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || isRefusal(err) {
		t.missed.Reset()
		return true
	}
	asked := kube.RetryAfter(err)
	t.retryAfter, t.pausedUntil = time.Now().Add(asked), time.Now().Add(t.missed.Next(asked))
	return false
}

// dueKeys returns the keys of the tokens to request now. It omits a token whose request is in flight. It also omits a token that was never
// requested, because Prepare requests it.
func (t *tokens) dueKeys() []store.TokenKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.pausedUntil) {
		return nil
	}
	clock := t.now()
	var due []*token
	for _, n := range t.list {
		if n.requestEnded == nil && (n.Token.Token != "" || n.err != nil) && n.untilRequest(clock) == 0 {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b *token) int { return a.Expires.Compare(b.Expires) })
	keys := make([]store.TokenKey, len(due))
	for i, n := range due {
		keys[i] = n.TokenKey
	}
	return keys
}

func (t *tokens) timeUntilDue() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	clock, wait := t.now(), checkEvery
	for _, n := range t.list {
		if n.Token.Token != "" || n.err != nil {
			wait = min(wait, n.untilRequest(clock))
		}
	}
	return max(wait, retryMin, time.Until(t.pausedUntil))
}

// obtainToken requests a token if it is missing or must be refreshed. If a request for the token is in flight, it waits for that request
// instead.
func (t *tokens) obtainToken(ctx context.Context, k store.TokenKey, refresh bool) error {
	t.mu.Lock()
	n := t.list[k]
	if n == nil || n.Token.Token != "" && !refresh || n.err != nil && !refresh && time.Now().Before(n.retryTime) {
		t.mu.Unlock()
		return nil
	}
	if n.requestEnded != nil {
		busy := n.requestEnded
		t.mu.Unlock()
		return waitAll(ctx, []<-chan struct{}{busy})
	}
	n.requestEnded = make(chan struct{})
	t.mu.Unlock()
	got, err := t.requestToken(ctx, n)
	if err == nil {
		if serr := t.store.PutToken(context.WithoutCancel(ctx), got); serr != nil && ctx.Err() == nil {
			t.log.Error("a token could not be stored yet: until then it is missing after a restart without the API server",
				"pod", n.pod.namespace+"/"+n.pod.name, "uid", k.UID, "error", serr)
		}
	}
	t.mu.Lock()
	close(n.requestEnded)
	n.requestEnded = nil
	n.recordAnswer(got, err)
	t.mu.Unlock()
	if err == nil {
		t.notifyPod(k.UID)
	}
	t.wakeRun()
	return err
}

func (n *token) recordAnswer(got store.Token, err error) {
	if err == nil {
		n.Token, n.err, n.failures, n.retryTime, n.early = got, nil, 0, time.Time{}, randomJitter(got)
		n.backoff.Reset()
		n.due = time.Now().Add(n.refreshAt().Sub(n.Issued))
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	n.failures++
	n.err = fmt.Errorf("service account token for audience %q: %w", n.Audience, err)
	pause := n.backoff.Next(kube.RetryAfter(err))
	if isRefusal(err) {
		pause = retry.Jitter(min(refusedMin<<min(n.failures-1, 6), refusedMax))
	}
	if n.Token.Token == "" && n.failures <= earlyRefusals {
		pause = max(retry.Jitter(retryMin), kube.RetryAfter(err))
	}
	n.retryTime = time.Now().Add(pause)
}

// isRefusal reports whether the server has refused the request.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) {
		return false
	}
	return status.Status().Code >= 400 && status.Status().Code < 500
}

func (t *tokens) requestToken(ctx context.Context, n *token) (store.Token, error) {
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &n.Seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: n.pod.name, UID: n.UID},
	}}
	if n.Audience != "" {
		req.Spec.Audiences = []string{n.Audience}
	}
	for failures := 0; ; failures++ {
		pod := n.pod
		got, err := kube.CreateSub[v1.ServiceAccount, authenticationv1.TokenRequest](
			ctx, t.client, pod.namespace, pod.account, "token", req)
		if err == nil && got.Status.Token == "" {
			err = errors.New("the server's answer has no token")
		}
		if err == nil {
			out := store.Token{TokenKey: n.TokenKey, Token: got.Status.Token, Expires: got.Status.ExpirationTimestamp.Time}
			seconds := n.Seconds
			if s := got.Spec.ExpirationSeconds; s != nil {
				seconds = *s
			}
			out.Issued = out.Expires.Add(-time.Duration(seconds) * time.Second)
			return out, nil
		}
		if !apierrors.IsForbidden(err) || failures >= earlyRefusals || n.Token.Token != "" {
			return store.Token{}, err
		}
		timer := time.NewTimer(earlyPause(failures)) // the server may not know yet that the pod runs here
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return store.Token{}, ctx.Err()
		}
	}
}

// listProblems returns a problem for each token that has expired or could not be requested.
func (t *tokens) listProblems() (list []Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clock := t.now()
	for _, n := range t.list {
		name := fmt.Sprintf("service account token of pod %s/%s for audience %q", n.pod.namespace, n.pod.name, n.Audience)
		p := Problem{UID: n.UID, Object: name}
		switch {
		case n.Token.Token == "" && n.err != nil:
			p.Message = n.err.Error()
		case n.Token.Token != "" && clock.After(n.Expires):
			p.Message = fmt.Sprintf("it expired at %s and is used until the API server issues a new one",
				n.Expires.UTC().Format(time.RFC3339))
			if n.err != nil {
				p.Message += ": " + n.err.Error()
			}
		default:
			continue
		}
		list = append(list, p)
	}
	return list
}
