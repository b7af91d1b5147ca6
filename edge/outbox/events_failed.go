package outbox

import (
	"cmp"
	"errors"
	"time"

	"github.com/islet-edge/islet/edge/kube"
)

// maxTries is the number of failures after which an event is given up, as in the event broadcaster of client-go. Unlike there, a failure
// counts only if the server has accepted another event since the previous one. Events therefore survive an outage of any length.
const maxTries = 12

// postpone delays an event that could not be sent, so that the next events are sent first. If the failure may concern only some events, it
// returns true. Otherwise the caller must wait before it sends any event.
func (e *Events) postpone(sent *record, err error) (others bool) {
	if errors.Is(err, kube.ErrNoLink) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	one := mayConcernOne(err)
	if r := e.original(sent); r != nil {
		r.tries = min(r.tries+1, maxTries)
		r.next = now.Add(ownDelay(int(r.tries)))
		if one && e.holds.accepted != r.acceptedBefore {
			r.acceptedBefore = e.holds.accepted
			e.noteRefused(r, sent.count, err)
		}
	}
	if !one {
		e.holds.fail(sent.eventNamespace(), false, now)
		return false
	}
	return !e.holds.fail(sent.eventNamespace(), sent.tries == 0, now)
}

// noteRefused counts a failure of an event while others were accepted. After maxTries such failures, the event is given up. A repetition of
// such an event is tried until one more failure counts. The caller must hold mu.
func (e *Events) noteRefused(r *record, count int32, err error) {
	r.refused = min(r.refused+1, maxTries)
	if r.refused < maxTries {
		return
	}
	if !r.givenUp {
		r.givenUp = true
		e.dropped++
		e.Log.Warn("the API server does not accept an event, which is given up", "reason", r.key.reason, "object", r.object, "error", err)
	}
	e.markSent(r, count)
}

// heldUntil returns the time before which an event must not be sent because of failures. The caller must hold mu.
func (e *Events) heldUntil(r *record, now time.Time) time.Time {
	if until := e.holds.until(r.eventNamespace(), r.tries > 0, now); until.After(r.next) {
		return until
	}
	return r.next
}

// compareFailed orders events that have failed by the time of their next attempt. The caller must hold mu.
func (e *Events) compareFailed(a, b *record) int {
	return cmp.Or(e.holds.compare(a.eventNamespace(), b.eventNamespace(), int(a.tries), int(b.tries)), a.next.Compare(b.next))
}

// endHolds permits an immediate attempt to send the events that have failed. Call it when the link is up again.
func (e *Events) endHolds() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds.end(time.Now())
	for _, r := range e.records {
		if r.tries > 0 {
			r.next = time.Time{}
		}
	}
}

// original returns the record of which r is a copy, or nil if it was dropped. The caller must hold mu.
func (e *Events) original(r *record) *record {
	for _, k := range e.byObject[r.key.uid] {
		if k.key == r.key && k.name == r.name {
			return k
		}
	}
	return nil
}

// markSent records that an event need not be sent until its count exceeds the given count. The caller must hold mu.
func (e *Events) markSent(r *record, count int32) {
	r.sentCount, r.next = count, time.Now().Add(repeatEvery)
	if r.stored.isStored {
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
}
