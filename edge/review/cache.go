package review

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/islet-edge/islet/internal/connlimit"
)

const (
	maxEntries = 512 // maximum number of cached answers
	timeout    = 10 * time.Second
)

// errRejected is part of the errors that the API server has answered because of the client's token.
var errRejected = errors.New("the API server did not accept the token")

// An answerCache caches the API server's answers. It uses monotonic times, so a change of the wall clock does not affect the lifetime of an
// answer.
type answerCache[V any] struct {
	salt       [32]byte // protects tokens against reads of the memory and against timing attacks
	isPositive func(V) bool
	networkOf  func(context.Context) netip.Prefix
	flights    singleflight.Group
	turns      *turns

	mu      sync.Mutex
	entries map[string]cachedAnswer[V]
}

// A cachedAnswer may have expired. It then only shows whether the answer was positive.
type cachedAnswer[V any] struct {
	value    V
	positive bool
	expires  time.Time
}

func newAnswers[V any](isPositive func(V) bool, limitsRejected bool) *answerCache[V] {
	a := &answerCache[V]{isPositive: isPositive, networkOf: connlimit.NetworkOf, turns: newTurns(limitsRejected),
		entries: map[string]cachedAnswer[V]{}}
	_, _ = rand.Read(a.salt[:]) // never fails
	return a
}

// get returns a cached answer. If the cache has no answer, get calls the function ask, which requests the answer from the API server. That
// function also returns the TTL of the answer. The request continues when the caller's context ends, because other callers may wait for the
// same answer.
func (a *answerCache[V]) get(ctx context.Context, question any, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	var none V
	key, err := a.hashQuestion(question)
	if err != nil {
		return none, err
	}
	if v, ok := a.findCached(key); ok {
		return v, nil
	}
	result := a.flights.DoChan(key, func() (any, error) {
		if v, ok := a.findCached(key); ok { // another call has stored the answer in the meantime
			return v, nil
		}
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		end, err := a.turns.begin(asking, a.networkOf(ctx), a.wasPositive(key))
		if err != nil {
			return none, err
		}
		v, ttl, err := ask(asking)
		end(err == nil && !a.isPositive(v) || errors.Is(err, errRejected))
		if err == nil && ttl > 0 {
			a.add(key, v, ttl)
		}
		return v, err
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return none, r.Err
		}
		return r.Val.(V), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (a *answerCache[V]) hashQuestion(question any) (string, error) {
	text, err := json.Marshal(question)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, a.salt[:])
	h.Write(text)
	return string(h.Sum(nil)), nil
}

func (a *answerCache[V]) findCached(key string) (V, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.entries[key]
	if ok && time.Now().Before(k.expires) {
		return k.value, true
	}
	var none V
	return none, false
}

// wasPositive reports whether the last answer was positive. The answer may have expired.
func (a *answerCache[V]) wasPositive(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entries[key].positive
}

// add stores an answer. If the cache is full, add removes another one: a negative answer if there is any, so that invalid tokens do not
// replace valid ones. Among these answers, it removes the one that expires first.
func (a *answerCache[V]) add(key string, v V, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.entries[key]; !known && len(a.entries) >= maxEntries {
		next := ""
		for k, e := range a.entries {
			if o := a.entries[next]; next == "" || o.positive && !e.positive || o.positive == e.positive && e.expires.Before(o.expires) {
				next = k
			}
		}
		delete(a.entries, next)
	}
	a.entries[key] = cachedAnswer[V]{v, a.isPositive(v), time.Now().Add(ttl)}
}
