package outbox

import (
	"errors"
	"time"

	"github.com/islet-edge/islet/edge/kube"
)

// maxTries is the number of failures after which an event is given up, as in the event broadcaster of client-go. Unlike there, an event is
// given up only if the server has accepted other events meanwhile. Events therefore survive an outage of any length.
const maxTries = 12

// postpone delays an event that could not be sent, so that the next events are sent first. If the failure may concern only some events, it
// also delays the other events of the namespace, because many webhooks concern one namespace, and returns true. Otherwise the caller must
// wait before it sends any event.
func (e *Events) postpone(sent *record, err error) (others bool) {
	if errors.Is(err, kube.ErrNoLink) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if r := e.original(sent); r != nil {
		if r.tries == 0 {
			r.acceptedBefore = e.accepted
		}
		r.tries = min(r.tries+1, maxTries)
		r.next = now.Add(ownDelay(int(r.tries)))
		if r.tries == maxTries && e.accepted != r.acceptedBefore {
			e.Log.Warn("the API server does not accept an event, which is given up", "reason", r.key.reason, "object", r.object,
				"error", err)
			e.dropped++
			e.markSent(r, sent.count)
		}
	}
	if !mayConcernOne(err) {
		return false
	}
	for namespace, h := range e.holds {
		if h.isOver(now) { // also of namespaces that have no events any more
			delete(e.holds, namespace)
		}
	}
	h := e.holds[sent.eventNamespace()]
	if h == nil {
		h = &hold{}
		e.holds[sent.eventNamespace()] = h
	}
	h.extend(now)
	return true
}

// heldUntil returns the time before which an event must not be sent because of failures. The caller must hold mu.
func (e *Events) heldUntil(r *record) time.Time {
	if h := e.holds[r.eventNamespace()]; h != nil && h.until.After(r.next) {
		return h.until
	}
	return r.next
}

// endHolds permits an immediate attempt to send the events that have failed. Call it when the link is up again.
func (e *Events) endHolds() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.holds)
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
