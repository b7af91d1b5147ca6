package kube

import (
	"context"
	"fmt"
	"sync"
)

// The bounds of what answers may take. All answers of a server together take at most
// 16 MiB at one time: 32 small ones and a large one. The first bytes of an answer are free,
// so that a lease is renewed while large answers wait.
const (
	freeAnswer  = 16 << 10
	smallAnswer = 128 << 10
	smallPlaces = 32
	mostAnswer  = 8 << 20   // bytes of one answer, decompressed; an object in etcd has 1.5 MiB
	mostFailure = 256 << 10 // bytes of an answer that is an error
	mostEvent   = 4 << 20   // bytes of one event of a watch
	mostDecoded = 24 << 20  // memory of one answer once it is decoded
	mostListed  = 24 << 20  // memory of all pages of a list once they are decoded
	// streamWindow is what the server may send of an answer that nobody reads yet: the answers
	// that wait for each other wait on the server.
	streamWindow = 128 << 10
	// mostHeaders bounds the headers of an answer.
	mostHeaders = 64 << 10
)

// errTooLong ends an answer that is longer than its bound.
var errTooLong = fmt.Errorf("the server's answer is longer than %d MiB", mostAnswer>>20)

// Answers is the memory that answers of the API server may take at one time. Clients that
// speak to the same server share one.
type Answers struct {
	small chan struct{} // a place each
	large chan struct{}
}

// NewAnswers returns a budget that nothing is taken from.
func NewAnswers() *Answers {
	return &Answers{small: make(chan struct{}, smallPlaces), large: make(chan struct{}, 1)}
}

// A claim is the part of the budget that one request holds, or all pages of a list. A claim
// that has no place waits for a small one, and a claim with a small place waits for the large
// one, so claims never wait in a circle.
type claim struct {
	of    *Answers
	mu    sync.Mutex // held while it waits: a claim grows once at a time
	small bool
	large bool
}

// hold waits until so many bytes of an answer may be in memory, and reports whether it had
// to. It returns the cause of ctx when that ends first.
func (c *claim) hold(ctx context.Context, bytes int) (waited bool, err error) {
	if bytes <= freeAnswer {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited, err = take(ctx, c.of.small, &c.small); err != nil || bytes <= smallAnswer {
		return waited, err
	}
	more, err := take(ctx, c.of.large, &c.large)
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

// release gives the places back; it may be called again.
func (c *claim) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.large {
		<-c.of.large
	}
	if c.small {
		<-c.of.small
	}
	c.small, c.large = false, false
}

// ofList marks the context of the requests for the pages of a list, with their claim.
type ofList struct{}

// claimOf returns the claim that a request's answer is counted against, and a function
// that ends the request's part in it.
func (c *Client) claimOf(ctx context.Context) (on *claim, end func()) {
	if shared, ok := ctx.Value(ofList{}).(*claim); ok {
		return shared, func() {}
	}
	on = &claim{of: c.answers}
	return on, on.release
}
