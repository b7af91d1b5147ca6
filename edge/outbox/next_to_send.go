package outbox

import (
	"cmp"
	"slices"
	"time"
)

// nextToSend returns the items to send now and marks them as busy. It also returns the time until the next call. It prefers urgent changes,
// then items that have failed or will probably fail, then steps of starting pods, then pods that wait for their sandbox or will soon be
// removed. The second result contains the ended pods that can be forgotten without a request. They never wait for the link, because a pod
// with the same name may wait for them.
func (o *Outbox) nextToSend() (due, ended []*item, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &turn{o: o, now: time.Now(), maxRequests: maxParallel}
	if o.serverBackoff.HasFailed() {
		t.maxRequests = 1
	}
	var doubtful, steps, last []*item
	for _, it := range o.allItems() {
		switch {
		case it.busy || it.due.IsZero():
		case it.canForgetUnreported(o.listed):
			if t.now.Before(it.due) { // the store has failed
				t.limitDelay(it.due)
				continue
			}
			it.busy, it.due, it.unsettled = true, time.Time{}, time.Time{}
			ended = append(ended, it)
		case !o.listed || o.offline:
		case t.now.Before(o.pausedUntil):
			t.limitDelay(o.pausedUntil)
		case t.isHeld(it):
		case t.now.Before(it.due):
			t.limitDelay(it.due)
		case t.holdOf(it) != nil:
			doubtful = append(doubtful, it)
		case (it.isOnlyStarting() || it.endsSoon()) && t.now.Before(it.due.Add(startingDelay)):
			t.limitDelay(it.due.Add(startingDelay))
			if it.isOnlyStarting() && it.hasSandbox() {
				steps = append(steps, it)
			} else {
				last = append(last, it)
			}
		case o.busy < t.maxRequests:
			t.addItem(it)
		}
	}
	t.takeDoubtful(doubtful)
	t.takeSteps(steps)
	t.takeLast(last)
	return t.due, ended, t.wait
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

// holdOf returns the hold that concerns an item, or nil if there is none.
func (t *turn) holdOf(it *item) *hold { return t.o.holds.of(it.name.Namespace, it.failures > 0, t.now) }

// isHeld reports whether an item must wait because of failures.
func (t *turn) isHeld(it *item) bool {
	h := t.holdOf(it)
	if h == nil || !t.now.Before(h.until) {
		return false
	}
	t.limitDelay(h.until)
	return true
}

func (t *turn) addItem(it *item) {
	if it.failures > 0 { // one item that has failed at a time, because its request may wait for a webhook; send ends the hold
		t.o.holds.failed.until = t.now.Add(lastRetry)
	} else if it.hold = t.holdOf(it); it.hold != nil { // not several at once, because the server may be overloaded; send ends the hold
		it.hold.until = t.now.Add(nextDoubtful)
	}
	t.o.busy++
	it.busy, it.due, it.unsettled = true, time.Time{}, time.Time{}
	t.due = append(t.due, it)
}

// takeDoubtful takes items whose requests have failed or will probably fail. They leave one request to the other items, because their
// requests may wait for a webhook.
func (t *turn) takeDoubtful(items []*item) {
	slices.SortFunc(items, func(a, b *item) int {
		if failed := a.failures > 0; failed != (b.failures > 0) {
			return cmp.Compare(b.failures, a.failures)
		}
		return cmp.Or(t.o.holds.compare(a.name.Namespace, b.name.Namespace, a.failures, b.failures), dueFirst(a, b))
	})
	for _, it := range items {
		if t.o.busy >= max(t.maxRequests-1, 1) {
			return // nextToSend is called again after the end of a request
		}
		if !t.isHeld(it) {
			t.addItem(it)
		}
	}
}

// takeSteps takes steps of starting pods, oldest first, until the limit of requests or the rate limit is reached. When many pods start at
// once, a newer status of a pod often replaces the status that waits.
func (t *turn) takeSteps(steps []*item) {
	slices.SortFunc(steps, dueFirst)
	for _, it := range steps {
		if t.o.busy >= t.maxRequests {
			return // nextToSend is called again after the end of a request
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
