package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// defaultSilence is the timeout of a request while no connection receives data.
	defaultSilence = 30 * time.Second
	// defaultBusy is the timeout of a request while other requests receive data.
	defaultBusy = 5 * time.Minute
	// roundTrips is the number of round-trip times that an operation with one round trip may take. The surplus is a tolerance for lost
	// packets.
	roundTrips = 8
	longTrip   = 10 * time.Second // maximum round-trip time that is assumed
)

// progress records when the connections of a client last received data. Timeouts are counted from that time, so a slow link is not mistaken
// for a dead one.
type progress struct {
	began        time.Time
	lastReceived atomic.Int64 // time from began to the last received data
	roundTrip    atomic.Int64 // duration of the last connect, as the round-trip time
}

func (p *progress) now() int64      { return int64(time.Since(p.began)) }
func (p *progress) lastData() int64 { return p.lastReceived.Load() }
func (p *progress) recordData()     { p.lastReceived.Store(p.now()) }
func (p *progress) slack() int64    { return roundTrips * p.roundTrip.Load() }
func (p *progress) connected(in time.Duration) {
	p.roundTrip.Store(int64(min(in, longTrip)))
	p.recordData()
}

// errSilent ends a request if no connection has received data for some time. It wraps context.DeadlineExceeded.
var errSilent = fmt.Errorf("nothing arrived: %w", context.DeadlineExceeded)

// ErrBusy ends a request that got no answer although other requests received data. On a slow link, an answer may have to wait for other
// answers. The server has most likely executed the request.
var ErrBusy = fmt.Errorf("no answer, though the link works: %w", context.DeadlineExceeded)

type (
	patienceKey struct{}
	busyKey     struct{}
)

// WithSilenceTimeout returns a context that sets the timeout of a request while no data arrives. Some round trips are added to the timeout.
// The default is half a minute.
func WithSilenceTimeout(ctx context.Context, silence time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, silence)
}

// WithBusyTimeout returns a context that sets a timeout for a request whose own answer does not arrive although other data arrives. After
// the timeout, the request ends with ErrBusy. The default is five minutes.
func WithBusyTimeout(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, busyKey{}, most)
}

// requestTimeouts is the context of one request. It implements the two timeouts of the request. After a timeout, its cause is errSilent or
// ErrBusy.
type requestTimeouts struct {
	context.Context
	cancel        context.CancelCauseFunc
	c             *Client
	silence       time.Duration
	answerTimeout time.Duration // timeout while no data of the request's own answer arrives
	began         atomic.Int64
	lastOwnData   atomic.Int64 // time of the last received data of the answer
	timer         *time.Timer

	share        *share // part of the budget of answers
	releaseShare func() // releases the share after the request
	waits        atomic.Int32
}

type ownProgress struct{}

func (c *Client) newTimeouts(ctx context.Context) *requestTimeouts {
	p := &requestTimeouts{c: c, silence: defaultSilence, answerTimeout: defaultBusy}
	p.share, p.releaseShare = c.shareOf(ctx)
	p.began.Store(c.progress.now())
	if d, ok := ctx.Value(patienceKey{}).(time.Duration); ok {
		p.silence = d
	}
	if d, ok := ctx.Value(busyKey{}).(time.Duration); ok {
		p.answerTimeout = d
	}
	p.lastOwnData.Store(p.began.Load())
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.Context = context.WithValue(ctx, ownProgress{}, p)
	ready := make(chan struct{})
	p.timer = time.AfterFunc(min(p.silence, p.answerTimeout), func() {
		<-ready
		p.check()
	})
	close(ready)
	return p
}

// check is called by the timer. It cancels the request after a timeout, or sets the timer for the next check.
func (p *requestTimeouts) check() {
	now, last := p.c.progress.now(), p.c.progress.lastData()
	quiet := max(p.began.Load(), last) + int64(p.silence) + p.c.progress.slack() - now
	own := p.lastOwnData.Load() + int64(p.answerTimeout) - now
	switch {
	case p.waits.Load() > 0: // the request waits for memory, not for the server
		p.timer.Reset(p.silence)
	case quiet <= 0:
		p.cancel(errSilent)
	case own > 0:
		p.timer.Reset(time.Duration(min(quiet, own)))
	case last > p.began.Load():
		p.cancel(ErrBusy)
	default: // no data has arrived
		p.timer.Reset(time.Duration(min(quiet, int64(p.answerTimeout))))
	}
}

// timeoutError returns errSilent or ErrBusy if the request has timed out.
func (p *requestTimeouts) timeoutError() error {
	if cause := context.Cause(p.Context); errors.Is(cause, errSilent) || errors.Is(cause, ErrBusy) {
		return cause
	}
	return nil
}

// stopTimeout stops the timeouts of a request whose answer has begun. If the request has already timed out, stopTimeout returns errSilent
// or ErrBusy.
func (p *requestTimeouts) stopTimeout() error {
	p.timer.Stop()
	return p.timeoutError()
}

// startRestTimeout starts a timeout for the rest of an answer, after a call of stopTimeout. If no data of this answer arrives for
// answerTimeout, the request ends with ErrBusy. The returned function stops the timeout.
func (p *requestTimeouts) startRestTimeout() (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(p)
	p.lastOwnData.Store(p.c.progress.now())
	go func() {
		timer := time.NewTimer(p.answerTimeout)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			left := p.lastOwnData.Load() + int64(p.answerTimeout) - p.c.progress.now()
			switch {
			case p.waits.Load() > 0: // the request waits for memory, not for the server
				timer.Reset(p.answerTimeout)
			case left > 0:
				timer.Reset(time.Duration(left))
			default:
				p.cancel(ErrBusy)
				return
			}
		}
	}()
	return stop
}

func (p *requestTimeouts) endRequest() {
	p.timer.Stop()
	p.cancel(nil)
	p.releaseShare()
}

// acquireBytes waits until the given number of bytes of the answer fits into the budget. The wait does not count for the timeouts.
func (p *requestTimeouts) acquireBytes(bytes int) error {
	p.waits.Add(1)
	defer p.waits.Add(-1)
	waited, err := p.share.acquireBytes(p, bytes)
	if waited {
		now := p.c.progress.now()
		p.began.Store(now)
		p.lastOwnData.Store(now)
	}
	return err
}

// trackBody returns a body that records the progress of its request.
func trackBody(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	p, ok := ctx.Value(ownProgress{}).(*requestTimeouts)
	if !ok {
		return body
	}
	p.lastOwnData.Store(p.c.progress.now())
	return &ownBody{ReadCloser: body, p: p}
}

type ownBody struct {
	io.ReadCloser
	p *requestTimeouts
}

// Read reads from the body and records received data.
func (b *ownBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if n > 0 {
		b.p.lastOwnData.Store(b.p.c.progress.now())
	}
	return n, err
}
