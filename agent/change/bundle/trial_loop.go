package bundle

import (
	"context"
	"time"

	"github.com/islet-edge/islet/edge/desired"
)

const (
	judgeEvery   = time.Second      // during a trial; the pods' statuses of one moment are compared, so no event is enough
	retryDeliver = 10 * time.Second // after a failure without a trial
)

// A loop delivers the pods of the bundle in force, and judges a trial. One goroutine owns it.
type loop struct {
	*Node
	delivered *Bundle // the bundle whose pods the sink has; nil if none
	ready     bool    // whether delivered is valid
	set       *set
	trial     *Trial // of the judge; a bundle that is tried again is another Trial
	judge     judge
	said      string // the last failure that was logged
}

// run works until ctx ends.
func (n *Node) run(ctx context.Context) error {
	l := &loop{Node: n}
	if n.found {
		l.begin()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.poke:
		case <-timer.C:
		}
		if wait := l.round(ctx); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// begin counts the start of the agent, and removes what a power cut has left.
func (l *loop) begin() {
	l.changing.Lock()
	defer l.changing.Unlock()
	if r := l.now(); r.Start(l.c.Now()) {
		if err := l.change(func(to *Record) error { *to = r; return nil }); err != nil {
			l.c.Log.Error("the start of the agent cannot be counted in the trial of a bundle", "error", err)
		}
	}
	if err := l.sweep(); err != nil {
		l.c.Log.Warn("the folders of old bundles cannot be removed", "error", err)
	}
}

// round delivers the pods of the bundle in force, and judges its trial. It returns the time until the next round, or 0 if only a change of
// the record requires one.
func (l *loop) round(ctx context.Context) time.Duration {
	r, now := l.now(), time.Now()
	if (r.Abandoned != "" || r.Trial != nil && r.Trial.Configuring) && !l.settle(&r) {
		return judgeEvery
	}
	if r.Trial == nil {
		l.trial = nil
	} else if l.trial != r.Trial {
		l.trial, l.judge = r.Trial, judge{healthyFor: l.c.HealthyFor, deadline: now.Add(l.c.Deadline)}
	}
	if err := l.deliver(ctx, r.InForce()); err != nil {
		l.ready = false
		if ctx.Err() != nil { // the agent ends: that is not the fault of the bundle
			return 0
		}
		if err.Error() != l.said {
			l.said = err.Error()
			l.c.Log.Error("the pods of a bundle cannot be used: the pods stay as they are", "error", err)
		}
		if r.Trial != nil && !r.Trial.Configuring { // the bundle was verified, so a disk or a TPM may recover before the deadline
			if !now.Before(l.judge.deadline) {
				l.end(func(r *Record) { r.Fail(err.Error(), Failed, l.c.Now()) }, r.Trial)
			}
			return judgeEvery
		}
		l.c.Sink.ReportFailure(desired.Bundle, []desired.Problem{{Origin: File, Message: err.Error()}})
		return retryDeliver
	}
	l.said = ""
	switch {
	case r.Trial == nil:
		return 0
	case r.Trial.Configuring:
		return judgeEvery
	}
	switch v, why := l.judge.decide(unready(r.Trial.Must, l.set.uids(), l.c.List()), now); v {
	case good:
		l.end(func(r *Record) { r.Keep(l.c.Now()) }, r.Trial)
	case bad:
		l.end(func(r *Record) { r.Fail(why, Failed, l.c.Now()) }, r.Trial)
	}
	return judgeEvery
}

// end ends a trial, unless a person has ended it.
func (l *loop) end(how func(*Record), t *Trial) {
	l.changing.Lock()
	defer l.changing.Unlock()
	r := l.now()
	if r.Trial != t {
		return
	}
	how(&r)
	if err := l.change(func(to *Record) error { *to = r; return nil }); err != nil {
		l.c.Log.Error("the result of a bundle cannot be stored: its trial continues", "error", err)
		return
	}
	switch {
	case r.Trial != nil:
		l.c.Log.Info("the configuration of a bundle was accepted, its pods are on trial", "bundle", t.String())
	case r.Last.Result == Kept:
		l.c.Log.Info("a bundle is kept", "bundle", t.String())
	default:
		l.c.Log.Error("a bundle has failed, the node returns to the previous bundle", "bundle", t.String(), "reason", r.Last.Why)
	}
	if err := l.sweep(); err != nil {
		l.c.Log.Warn("the folders of old bundles cannot be removed", "error", err)
	}
}

// deliver passes the pods of the bundle in force to the sink, unless it has them.
func (l *loop) deliver(ctx context.Context, b *Bundle) error {
	if l.ready && (b == nil) == (l.delivered == nil) && (b == nil || *b == *l.delivered) {
		return nil
	}
	next := &set{}
	if b != nil {
		docs, err := l.read(*b)
		if err == nil {
			next, err = l.decode(docs)
		}
		if err != nil {
			return err
		}
	}
	if err := l.c.Sink.SetObjects(ctx, desired.Bundle, next.objects, nil); err != nil {
		return err
	}
	if err := l.c.Sink.Set(ctx, desired.Bundle, next.sourcePods, nil); err != nil {
		return err
	}
	l.delivered, l.set, l.ready = b, next, true
	return nil
}
