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
	// silent is how long a request waits while nothing arrives, from whatever connection.
	silent = 30 * time.Second
	// stuck is how long it waits while things arrive, but nothing of its own answer.
	stuck = 5 * time.Minute
	// trips is how many round trips a link may need for what should take one, when it
	// loses packets.
	trips    = 8
	longTrip = 10 * time.Second // a round trip counts for so much at most
)

// progress is what the connections of a client bring. What a thin link needs its time for
// must not be taken for a link that leads nowhere: only time without a byte counts.
type progress struct {
	began time.Time
	at    atomic.Int64 // when a byte last arrived, since began
	trip  atomic.Int64 // how long the last connection took to be made
}

func (p *progress) now() int64   { return int64(time.Since(p.began)) }
func (p *progress) last() int64  { return p.at.Load() }
func (p *progress) heard()       { p.at.Store(p.now()) }
func (p *progress) slack() int64 { return trips * p.trip.Load() }
func (p *progress) connected(in time.Duration) {
	p.trip.Store(int64(min(in, longTrip)))
	p.heard()
}

// errSilent ends a request for which nothing arrived; it is a deadline's error.
var errSilent = fmt.Errorf("nothing arrived: %w", context.DeadlineExceeded)

// ErrBusy ends a request that got no answer though the link works: on a thin one the
// answer waits behind what is under way, while the request has most likely arrived.
var ErrBusy = fmt.Errorf("no answer, though the link works: %w", context.DeadlineExceeded)

type (
	patience struct{}
	busy     struct{}
)

// Within gives a context whose requests end when nothing arrived for a time (half a
// minute without it), to which a link with long round trips adds some of them.
func Within(ctx context.Context, silence time.Duration) context.Context {
	return context.WithValue(ctx, patience{}, silence)
}

// Busy gives a context whose requests end with ErrBusy when things arrived, but nothing of
// their answer, for a time (five minutes without it).
func Busy(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, busy{}, most)
}

// patient is the context of one request. It ends with errSilent or ErrBusy as its cause.
type patient struct {
	context.Context
	cancel  context.CancelCauseFunc
	c       *Client
	silence time.Duration
	most    time.Duration // without something of the answer
	began   atomic.Int64
	own     atomic.Int64 // when something of the answer last arrived
	timer   *time.Timer

	claim *claim // on the memory for answers
	free  func() // ends the request's part in the claim
	waits atomic.Int32
}

type ownProgress struct{}

func (c *Client) patient(ctx context.Context) *patient {
	p := &patient{c: c, silence: silent, most: stuck}
	p.claim, p.free = c.claimOf(ctx)
	p.began.Store(c.progress.now())
	if d, ok := ctx.Value(patience{}).(time.Duration); ok {
		p.silence = d
	}
	if d, ok := ctx.Value(busy{}).(time.Duration); ok {
		p.most = d
	}
	p.own.Store(p.began.Load())
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.Context = context.WithValue(ctx, ownProgress{}, p)
	ready := make(chan struct{})
	p.timer = time.AfterFunc(min(p.silence, p.most), func() {
		<-ready
		p.check()
	})
	close(ready)
	return p
}

// check ends the request, or comes again when it could have to.
func (p *patient) check() {
	now, last := p.c.progress.now(), p.c.progress.last()
	quiet := max(p.began.Load(), last) + int64(p.silence) + p.c.progress.slack() - now
	own := p.own.Load() + int64(p.most) - now
	switch {
	case p.waits.Load() > 0: // for the node's memory, and not for the server
		p.timer.Reset(p.silence)
	case quiet <= 0:
		p.cancel(errSilent)
	case own > 0:
		p.timer.Reset(time.Duration(min(quiet, own)))
	case last > p.began.Load():
		p.cancel(ErrBusy)
	default: // nothing has arrived at all
		p.timer.Reset(time.Duration(min(quiet, int64(p.most))))
	}
}

// late is why the request was ended for want of an answer; nil: it was not.
func (p *patient) late() error {
	if cause := context.Cause(p.Context); errors.Is(cause, errSilent) || errors.Is(cause, ErrBusy) {
		return cause
	}
	return nil
}

// settle ends the watch over a request that goes on, and reports whether it came late.
func (p *patient) settle() error {
	p.timer.Stop()
	return p.late()
}

// expect ends a request that has settled with ErrBusy when nothing of its answer arrives for as
// long as one may take to go on, until stop is called.
func (p *patient) expect() (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(p)
	p.own.Store(p.c.progress.now())
	go func() {
		timer := time.NewTimer(p.most)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			left := p.own.Load() + int64(p.most) - p.c.progress.now()
			switch {
			case p.waits.Load() > 0: // for the node's memory, and not for the server
				timer.Reset(p.most)
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

func (p *patient) end() {
	p.timer.Stop()
	p.cancel(nil)
	p.free()
}

// hold waits until so many bytes of the answer may be in memory. The time that it waits is
// nobody's silence.
func (p *patient) hold(bytes int) error {
	p.waits.Add(1)
	defer p.waits.Add(-1)
	waited, err := p.claim.hold(p, bytes)
	if waited {
		now := p.c.progress.now()
		p.began.Store(now)
		p.own.Store(now)
	}
	return err
}

// watched gives a body that counts as progress of its request.
func watched(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	p, ok := ctx.Value(ownProgress{}).(*patient)
	if !ok {
		return body
	}
	p.own.Store(p.c.progress.now())
	return &ownBody{ReadCloser: body, p: p}
}

type ownBody struct {
	io.ReadCloser
	p *patient
}

// Read notes that a part of the answer arrived.
func (b *ownBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if n > 0 {
		b.p.own.Store(b.p.c.progress.now())
	}
	return n, err
}
