package outbox

import (
	"slices"
	"time"
)

// nextToSend returns the items to send now and marks them as busy. It also returns the time until the next call. It prefers urgent changes,
// then steps of starting pods, then pods that wait for their sandbox or will soon be removed.
func (o *Outbox) nextToSend() (due []*item, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &turn{o: o, now: time.Now(), maxRequests: maxParallel}
	if o.serverBackoff.HasFailed() {
		t.maxRequests = 1
	}
	var steps, last []*item
	for _, it := range o.allItems() {
		switch {
		case it.busy || it.due.IsZero() || !o.listed || o.offline:
		case t.now.Before(o.pausedUntil):
			t.limitDelay(o.pausedUntil)
		case t.isHeld(it):
		case t.now.Before(it.due):
			t.limitDelay(it.due)
		case (it.onlyStarting() || it.endsSoon()) && t.now.Before(it.due.Add(startingDelay)):
			t.limitDelay(it.due.Add(startingDelay))
			if it.onlyStarting() && it.hasSandbox() {
				steps = append(steps, it)
			} else {
				last = append(last, it)
			}
		case o.busy < t.maxRequests:
			t.addItem(it)
		}
	}
	t.takeSteps(steps)
	t.takeLast(last)
	return t.due, t.wait
}

// A turn contains the variables of one call of nextToSend. The Outbox's mu protects it.
type turn struct {
	o           *Outbox
	now         time.Time
	maxRequests int // maximum number of concurrent requests
	due         []*item
	wait        time.Duration
}

// limitDelay sets the latest time of the next call.
func (t *turn) limitDelay(at time.Time) {
	if d := max(at.Sub(t.now), time.Millisecond); t.wait == 0 || d < t.wait {
		t.wait = d
	}
}

// isHeld reports whether an item must wait because of failures.
func (t *turn) isHeld(it *item) bool {
	if it.tries == 0 || !t.now.Before(t.o.failed.until) {
		return false
	}
	t.limitDelay(t.o.failed.until)
	return true
}

func (t *turn) addItem(it *item) {
	if it.tries > 0 { // one item that has failed at a time, because its request may wait for a webhook
		t.o.failed.until = t.now.Add(lastRetry)
	}
	t.o.busy++
	it.busy, it.due, it.unsettled = true, time.Time{}, time.Time{}
	t.due = append(t.due, it)
}

// takeSteps takes steps of starting pods, oldest first, until the limit of requests or the rate limit is reached. When many pods start at
// once, a newer status of a pod often replaces the status that waits.
func (t *turn) takeSteps(steps []*item) {
	slices.SortFunc(steps, dueFirst)
	for _, it := range steps {
		if t.o.busy >= t.maxRequests {
			return // nextToSend is called again after the end of a request
		}
		if t.isHeld(it) {
			continue
		}
		if !t.o.startLimiter.AllowN(t.now, 1) {
			t.limitDelay(t.now.Add(stepEvery))
			return
		}
		t.addItem(it)
	}
}

// takeLast takes at most one status. It takes none if a request is in flight, or if it has taken one during the last firstStatusEvery. Most
// pods have started, and have a newer status, before their turn comes.
func (t *turn) takeLast(last []*item) {
	if len(last) == 0 || t.o.busy > 0 {
		return
	}
	if turn := t.o.lastFirst.Add(firstStatusEvery); t.now.Before(turn) {
		t.limitDelay(turn)
		return
	}
	t.o.lastFirst = t.now
	t.addItem(slices.MinFunc(last, dueFirst))
}

func dueFirst(a, b *item) int { return a.due.Compare(b.due) }
