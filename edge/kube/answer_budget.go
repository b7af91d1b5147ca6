package kube

import (
	"context"
	"fmt"
	"sync"
)

// Limits of the memory for answers. All answers of a server together may use about 16 MiB at a time: 32 small answers, and one large
// answer. The first bytes of each answer (freeAnswer) are always permitted, so a lease can be renewed while large answers wait.
const (
	freeAnswer  = 16 << 10
	smallAnswer = 128 << 10
	smallPlaces = 32
	maxAnswer   = 8 << 20   // maximum size of a decompressed answer, in bytes; an object in etcd has at most 1.5 MiB
	maxFailure  = 256 << 10 // maximum size of an error answer, in bytes
	maxEvent    = 4 << 20   // maximum size of a watch event, in bytes
	maxDecoded  = 24 << 20  // maximum size of a decoded answer, in bytes
	maxListed   = 24 << 20  // maximum size of all decoded pages of a list, in bytes
	// streamWindow is the flow-control window of an answer: the number of bytes that the server may send ahead of the client's reads. If an
	// answer waits for the budget, its other bytes stay on the server.
	streamWindow = 128 << 10
	// maxHeaders is the maximum size of an answer's headers, in bytes.
	maxHeaders = 64 << 10
)

// errTooLong is the error of an answer that exceeds its limit.
var errTooLong = fmt.Errorf("the server's answer is longer than %d MiB", maxAnswer>>20)

// AnswerBudget limits the memory that the API server's answers use at the same time. All clients of a server share one AnswerBudget.
type AnswerBudget struct {
	small chan struct{} // a semaphore: it contains a value for each place in use
	large chan struct{}
}

// NewAnswers returns a new budget.
func NewAnswers() *AnswerBudget {
	return &AnswerBudget{small: make(chan struct{}, smallPlaces), large: make(chan struct{}, 1)}
}

// A share is the part of the budget that one request uses. The pages of a list use one share together. An answer of up to freeAnswer bytes
// needs no place in the budget. For a longer answer, the share acquires one of the small places. For more than smallAnswer bytes, it also
// acquires the only large place. All shares acquire the places in this order, so they cannot deadlock.
type share struct {
	answers *AnswerBudget
	mu      sync.Mutex // held during a wait, so only one goroutine at a time grows a share
	small   bool
	large   bool
}

// acquireBytes waits until the budget has room for the given number of bytes of an answer. It reports whether it had to wait. If ctx ends
// first, the error is the cause.
func (c *share) acquireBytes(ctx context.Context, bytes int) (waited bool, err error) {
	if bytes <= freeAnswer {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited, err = takePlace(ctx, c.answers.small, &c.small); err != nil || bytes <= smallAnswer {
		return waited, err
	}
	more, err := takePlace(ctx, c.answers.large, &c.large)
	return waited || more, err
}

func takePlace(ctx context.Context, places chan struct{}, has *bool) (waited bool, err error) {
	if *has {
		return false, nil
	}
	select {
	case places <- struct{}{}:
		*has = true
		return false, nil
	default:
	}
	select {
	case places <- struct{}{}:
		*has = true
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// release returns the places of the share to the budget. It may be called more than once.
func (c *share) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.large {
		<-c.answers.large
	}
	if c.small {
		<-c.answers.small
	}
	c.small, c.large = false, false
}

// listShareKey is the context key for the share that all pages of a list use.
type listShareKey struct{}

// shareOf returns the share for the answer to a request, and a function to call after the request. The pages of a list get the same share,
// which is released after the last page.
func (c *Client) shareOf(ctx context.Context) (on *share, end func()) {
	if shared, ok := ctx.Value(listShareKey{}).(*share); ok {
		return shared, func() {}
	}
	on = &share{answers: c.answers}
	return on, on.release
}
