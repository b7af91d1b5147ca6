package review

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

const (
	maxEntries    = 512 // maximum number of cached answers
	maxConcurrent = 8   // maximum number of concurrent requests
	timeout       = 10 * time.Second
)

// An answerCache caches the API server's answers. It uses monotonic times, so a change of the wall clock does not affect the lifetime of an
// answer.
type answerCache[V any] struct {
	salt    [32]byte // protects tokens against reads of the memory and against timing attacks
	flights singleflight.Group
	slots   *semaphore.Weighted

	mu      sync.Mutex
	entries map[string]cachedAnswer[V]
}

type cachedAnswer[V any] struct {
	value   V
	expires time.Time
}

func newAnswers[V any]() *answerCache[V] {
	a := &answerCache[V]{slots: semaphore.NewWeighted(maxConcurrent), entries: map[string]cachedAnswer[V]{}}
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
		if err := a.slots.Acquire(asking, 1); err != nil {
			return none, fmt.Errorf("too many concurrent reviews: %w", err)
		}
		defer a.slots.Release(1)
		v, ttl, err := ask(asking)
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
	delete(a.entries, key)
	var none V
	return none, false
}

// add stores an answer. If the cache is full, add removes the expired answers. If no answer has expired, add removes the answer that
// expires next.
func (a *answerCache[V]) add(key string, v V, ttl time.Duration) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.entries) >= maxEntries {
		var next string
		for k, e := range a.entries {
			if !now.Before(e.expires) {
				delete(a.entries, k)
			} else if next == "" || e.expires.Before(a.entries[next].expires) {
				next = k
			}
		}
		if len(a.entries) >= maxEntries {
			delete(a.entries, next)
		}
	}
	a.entries[key] = cachedAnswer[V]{v, now.Add(ttl)}
}
