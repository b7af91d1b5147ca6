package kube

import (
	"context"
	"fmt"
	"sync"
)

// Limits of the memory for answers. All answers of a server together may use 16 MiB at a time: 32 small
// answers and a large one. The first bytes of an answer do not count, so that a lease can be renewed while
// large answers wait.
const (
	freeAnswer  = 16 << 10
	smallAnswer = 128 << 10
	smallPlaces = 32
	mostAnswer  = 8 << 20   // maximum size of a decompressed answer, in bytes; an object in etcd has at most 1.5 MiB
	mostFailure = 256 << 10 // maximum size of an error answer, in bytes
	mostEvent   = 4 << 20   // maximum size of a watch event, in bytes
	mostDecoded = 24 << 20  // maximum size of a decoded answer, in bytes
	mostListed  = 24 << 20  // maximum size of all decoded pages of a list, in bytes
	// streamWindow is the amount of data that the server may send before the client reads it. Answers that
	// wait for the budget remain on the server.
	streamWindow = 128 << 10
	// mostHeaders is the maximum size of an answer's headers, in bytes.
	mostHeaders = 64 << 10
)

// errTooLong is the error of an answer that exceeds its limit.
var errTooLong = fmt.Errorf("the server's answer is longer than %d MiB", mostAnswer>>20)

// Answers is the budget for the memory of the API server's answers. All clients of a server share one.
type Answers struct {
	small chan struct{} // contains a value for each place in use
	large chan struct{}
}

// NewAnswers returns a new budget.
func NewAnswers() *Answers {
	return &Answers{small: make(chan struct{}, smallPlaces), large: make(chan struct{}, 1)}
}

// A share is the part of the budget that one request uses, or that all pages of a list use together. An answer
// of up to freeAnswer bytes needs no place. For a longer answer the share acquires one of the small places. For
// more than smallAnswer bytes it then also acquires the only large place. Because all shares acquire the places
// in this order, they cannot deadlock.
type share struct {
	answers *Answers
	mu      sync.Mutex // held during a wait, so that a share grows in one goroutine at a time
	small   bool
	large   bool
}

// hold waits until the given number of bytes of an answer may be in memory, and reports whether it had to
// wait. If ctx ends first, it returns the cause.
func (c *share) hold(ctx context.Context, bytes int) (waited bool, err error) {
	if bytes <= freeAnswer {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited, err = take(ctx, c.answers.small, &c.small); err != nil || bytes <= smallAnswer {
		return waited, err
	}
	more, err := take(ctx, c.answers.large, &c.large)
	return waited || more, err
}

func take(ctx context.Context, places chan struct{}, has *bool) (waited bool, err error) {
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

// release frees the memory that the share holds. It may be called repeatedly.
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

// listShareKey is the context key of the share for all pages of a list.
type listShareKey struct{}

// shareOf returns the share of a request's answer, and a function that ends the request's use of it.
func (c *Client) shareOf(ctx context.Context) (on *share, end func()) {
	if shared, ok := ctx.Value(listShareKey{}).(*share); ok {
		return shared, func() {}
	}
	on = &share{answers: c.answers}
	return on, on.release
}
