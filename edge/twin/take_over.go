package twin

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxTakeOver is the maximum time for which TakeOver waits for reads of the Lease. The HTTP client of islet takeover waits at most a minute
// for the response.
const maxTakeOver = 50 * time.Second

// TakeOver claims the node name for this machine at the request of a user. It returns true if the machine already had the name. If force is
// false and another machine renews the Lease, TakeOver returns an error, because both machines could run pods with the same volumes. To
// detect this, TakeOver makes CheckOwner read the Lease twice, at an interval of Config.Renew, and waits for the result. If the Lease was
// never read, for example because the API server is unreachable, TakeOver does not check.
func (t *Twin) TakeOver(ctx context.Context, force bool) (hadName bool, err error) {
	now := marksOf(t.cfg.Marks())
	t.mu.Lock()
	if t.state == owningState {
		t.mu.Unlock()
		return true, nil
	}
	if !force {
		if err := t.awaitQuiet(ctx); err != nil || t.state == owningState {
			t.mu.Unlock()
			return false, err
		}
	}
	t.now = now
	t.rec = record{Node: t.cfg.Node, Marks: t.now, Term: t.claim.term + 1, Taking: true}
	t.claim.term, t.acknowledged, t.write, t.writes, t.earlier = t.rec.Term, false, false, 0, 0
	t.claimName()
	t.mu.Unlock()
	t.storeRecord(ctx)
	return false, nil
}

// awaitQuiet waits until nobody has renewed the Lease between two reads, or until this machine has the name. It returns an error if another
// machine has renewed the Lease, or if the reads were not finished in time. The caller must hold mu, which awaitQuiet releases while it
// waits.
func (t *Twin) awaitQuiet(ctx context.Context) error {
	w := &t.watch
	if w.looks == 0 && !w.asked {
		return nil
	}
	if isRecent := time.Since(w.next.Add(-w.wait)) < t.cfg.Renew; w.looks > 1 && !(w.isQuiet() && isRecent) {
		*w = watch{asked: true, wasQuiet: w.isQuiet()}
		t.signalChange()
	}
	timer := time.NewTimer(maxTakeOver)
	defer timer.Stop()
	for isLate := false; t.state != owningState && w.looks < 2; {
		if isLate {
			return t.unknownError()
		}
		if t.read == nil {
			t.read = make(chan struct{})
		}
		read := t.read
		t.mu.Unlock()
		select {
		case <-read:
		case <-timer.C:
			isLate = true
		case <-ctx.Done():
		}
		t.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if t.state != owningState && w.alive {
		return fmt.Errorf("another machine renews the Lease of node %s, or did so a moment ago: turn that machine off, "+
			"or give it another node name. If it is already off, run islet takeover again", t.cfg.Node)
	}
	return nil
}

// unknownError returns the error for a check that was not finished in time. It returns nil if the last finished check found no renewal and
// the API server is now unreachable.
func (t *Twin) unknownError() error {
	switch w := &t.watch; {
	case w.looks > 0:
		return fmt.Errorf("islet checks whether another machine renews the Lease of %s: try again in %s", t.cfg.Node,
			max(time.Second, time.Until(w.next).Round(time.Second)))
	case w.wasQuiet:
		return nil
	}
	return errors.New("islet cannot read the Lease of " + t.cfg.Node + " at the moment, and the other machine has renewed it before: " +
		"try again when the API server answers. If that machine is off for certain, run islet takeover --force")
}

// announceRead wakes TakeOver after the Lease was read or the state has changed. The caller must hold mu.
func (t *Twin) announceRead() {
	if t.read != nil {
		close(t.read)
		t.read = nil
	}
}
