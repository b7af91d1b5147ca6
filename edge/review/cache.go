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

// An answerCache caches the API server's answers, which have one type. It uses monotonic times, so a change of the wall clock does not
// affect the lifetime of an answer.
type answerCache struct {
	salt       [32]byte // protects tokens against reads of the memory and against timing attacks
	isPositive func(any) bool
	networkOf  func(context.Context) netip.Prefix
	flights    singleflight.Group
	turns      *turns

	mu      sync.Mutex
	entries map[string]cachedAnswer
}

// A cachedAnswer may have expired. It then only shows whether the answer was positive.
type cachedAnswer struct {
	value    any
	positive bool
	expires  time.Time
}

func newAnswers(isPositive func(any) bool, limitsRejected bool) *answerCache {
	a := &answerCache{isPositive: isPositive, networkOf: connlimit.NetworkOf, turns: newTurns(limitsRejected),
		entries: map[string]cachedAnswer{}}
	_, _ = rand.Read(a.salt[:]) // never fails
	return a
}

// get returns a cached answer. If the cache has no answer, get calls the function ask, which requests the answer from the API server. That
// function also returns the TTL of the answer. The request continues when the caller's context ends, because other callers may wait for the
// same answer.
func (a *answerCache) get(ctx context.Context, question any, ask func(context.Context) (any, time.Duration, error)) (any, error) {
	key, err := a.hashQuestion(question)
	if err != nil {
		return nil, err
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
			return nil, err
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
		return r.Val, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *answerCache) hashQuestion(question any) (string, error) {
	text, err := json.Marshal(question)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, a.salt[:])
	h.Write(text)
	return string(h.Sum(nil)), nil
}

func (a *answerCache) findCached(key string) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.entries[key]
	if ok && time.Now().Before(k.expires) {
		return k.value, true
	}
	return nil, false
}

// wasPositive reports whether the last answer was positive. The answer may have expired.
func (a *answerCache) wasPositive(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entries[key].positive
}

// add stores an answer. If the cache is full, add removes another one: a negative answer if there is any, so that invalid tokens do not
// replace valid ones. Among these answers, it removes the one that expires first.
func (a *answerCache) add(key string, v any, ttl time.Duration) {
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
	a.entries[key] = cachedAnswer{v, a.isPositive(v), time.Now().Add(ttl)}
}
