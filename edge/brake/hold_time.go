package brake

import (
	"context"
	"time"
)

// A holdTimer measures how long the current hold has lasted. It does not depend on the wall clock, which may be set by years when the node
// gets a connection. It does not count the time in which the agent did not run.
type holdTimer struct {
	stored time.Duration // duration before the time of began
	began  time.Time     // with a monotonic reading; zero if there is no hold
}

// update starts the timer if a hold begins, and resets the timer if the hold ends.
func (t *holdTimer) update(before, after *Hold) {
	switch {
	case after == nil:
		*t = holdTimer{}
	case before == nil:
		*t = holdTimer{max(0, after.Held), time.Now()}
	}
}

// duration returns the duration of the hold. It returns 0 if there is no hold.
func (t *holdTimer) duration() time.Duration {
	if t.began.IsZero() {
		return 0
	}
	return t.stored + time.Since(t.began)
}

// storeHeld stores the duration of the hold if it has grown by at least the given time.
func (b *Brake) storeHeld(ctx context.Context, atLeast time.Duration) {
	if b.Limit == 0 {
		return
	}
	b.judging.Lock()
	defer b.judging.Unlock()
	b.mu.Lock()
	now, held := b.state, b.held.duration()
	b.mu.Unlock()
	if now.Hold != nil && held-now.Hold.Held >= atLeast {
		h := *now.Hold
		h.Held, now.Hold = held, &h
		b.setState(ctx, now)
	}
}

// HoldDeadline returns the end of the current hold by the wall clock. It returns zero if the hold has no limit.
func (b *Brake) HoldDeadline() time.Time {
	if b.Limit == 0 {
		return time.Time{}
	}
	b.mu.Lock()
	held := b.held.duration()
	b.mu.Unlock()
	return b.Now().Add(max(0, b.Limit-held))
}

// endTimeout is the maximum time for storing the duration of the hold when the agent ends. If the disk takes longer, the time since
// the last stored duration does not count, as after a kill.
const endTimeout = 2 * time.Second

// Run checks the current hold periodically until ctx ends, and then stores its duration. It ends a hold whose time limit has passed. It
// requests a new list in two cases: when the pods that were removed one after the other can be judged together, and when the identity of
// the control plane has changed again.
func (b *Brake) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			b.storeHeld(ctx, time.Second)
			stop()
			return nil
		case <-b.wake:
		case <-timer.C:
		}
		timer.Stop()
		if wait := b.checkHold(ctx); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// checkHold checks the hold and returns the time until the next check, or 0 if there is no hold.
func (b *Brake) checkHold(ctx context.Context) time.Duration {
	b.mu.Lock()
	h, settle, held := b.state.Hold, b.settleAt, b.held.duration()
	b.mu.Unlock()
	if h == nil {
		return 0
	}
	if b.Limit > 0 && held >= b.Limit {
		b.Log.Warn("holdPodsFor has passed: the held pods end now", "pods", len(h.Pods), "since", h.Since, "held", held)
		if _, err := b.Accept(ctx); err != nil {
			b.Log.Error("the pods on hold cannot be ended", "error", err)
		}
		return lookEvery
	}
	b.storeHeld(ctx, min(storeHeldEvery, b.Limit/10))
	if b.Left != nil { // the node gets no list of pods
		return lookEvery
	}
	if h.Seen == nil {
		if wait := time.Until(settle); !settle.IsZero() && wait > 0 {
			return wait
		}
		notifyChannel(b.listAgain)
	} else if now, err := b.readIdentity(ctx, true); err == nil && now != *h.Seen {
		notifyChannel(b.listAgain)
	}
	return lookEvery
}
