package review

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/islet-edge/islet/internal/connlimit"
)

const (
	maxEntries = 512 // maximum number of cached answers
	timeout    = 10 * time.Second
)

// rejectionTTL is the time for which a rejection with an error is reused.
const rejectionTTL = 10 * time.Second

// firstRejectionTTL is rejectionTTL for a token whose last review was positive. The error may be temporary.
const firstRejectionTTL = time.Second

// errRejected is part of the errors that the API server has answered because of the client's token.
var errRejected = errors.New("the API server did not accept the token")

// An answerCache caches the API server's answers, which have one type. It uses monotonic times, so a change of the wall clock does not
// affect the lifetime of an answer.
type answerCache struct {
	salt       [32]byte // protects tokens against reads of the memory and against timing attacks
	isPositive func(any) bool
	clientOf   func(context.Context) connlimit.Client
	flights    singleflight.Group
	turns      *turns

	mu      sync.Mutex
	entries map[string]cachedAnswer
}

// A cachedAnswer is the last answer of the API server about a token or a request. After it has expired, it only shows whether the answer
// was positive.
type cachedAnswer struct {
	value    any
	err      error // errRejected, or nil
	positive bool  // also after one error, see firstRejectionTTL
	expires  time.Time
}

func newAnswers(isPositive func(any) bool, limitsRejected bool) *answerCache {
	a := &answerCache{isPositive: isPositive, clientOf: connlimit.ClientOf, turns: newTurns(limitsRejected),
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
	if k, ok := a.findCached(key); ok {
		return k.value, k.err
	}
	result := a.flights.DoChan(key, func() (any, error) {
		if k, ok := a.findCached(key); ok { // another call has stored the answer in the meantime
			return k.value, k.err
		}
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		end, err := a.turns.begin(asking, a.clientOf(ctx), a.wasPositive(key))
		if err != nil {
			return nil, err
		}
		v, ttl, err := ask(asking)
		positive := err == nil && a.isPositive(v)
		isAnswer := err == nil || errors.Is(err, errRejected)
		if former, _ := a.findCached(key); err != nil && isAnswer && former.positive && former.err == nil {
			positive, ttl = true, firstRejectionTTL
		}
		end(isAnswer && !positive)
		if isAnswer {
			a.add(key, cachedAnswer{v, err, positive, time.Now().Add(ttl)}, ttl > 0)
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

func (a *answerCache) findCached(key string) (cachedAnswer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.entries[key]
	return k, ok && time.Now().Before(k.expires)
}

// wasPositive reports whether the last answer was positive. The answer may have expired.
func (a *answerCache) wasPositive(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entries[key].positive
}

// add stores the newest answer to a question, or only removes the former one. If the cache is full, add removes the answer that expires
// first: a positive one if more than half of the answers are positive, or else a negative one. Invalid tokens therefore never remove the
// last maxEntries/2 valid tokens, and there is always room for negative answers.
func (a *answerCache) add(key string, answer cachedAnswer, isCached bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
	if !isCached {
		return
	}
	if len(a.entries) >= maxEntries {
		positives := 0
		for _, e := range a.entries {
			if e.positive {
				positives++
			}
		}
		next := ""
		for k, e := range a.entries {
			if e.positive == (positives > maxEntries/2) && (next == "" || e.expires.Before(a.entries[next].expires)) {
				next = k
			}
		}
		delete(a.entries, next)
	}
	a.entries[key] = answer
}
