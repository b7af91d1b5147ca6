package outbox

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// A rush is a period in which many pods start or end. Users then wait for the tokens and statuses of these pods, so normal events are
// delayed. Warnings are sent at once.
const (
	calmEvents    = 20 // number of events in a rushWindow up to which there is no rush
	rushWindow    = time.Second
	maxEventDelay = 10 * time.Second // maximum delay of an event
	maxWaiting    = maxEvents * 3 / 4
)

// rushDelay returns the delay of normal events, or 0 if there is no rush. The caller must hold mu.
func (e *Events) rushDelay(now time.Time) time.Duration {
	if len(e.records) <= calmEvents {
		return 0
	}
	wait := rushWindow - now.Sub(e.records[len(e.records)-1-calmEvents].last) // the newest events are at the end
	if wait <= 0 {
		return 0
	}
	n := 0
	for _, r := range e.records {
		if r.overBudget || r.sentCount == r.count || r.key.kind != v1.EventTypeNormal || r.tries > 0 {
			continue
		}
		n++
		if n > maxWaiting || now.Sub(r.last) >= maxEventDelay {
			return 0
		}
	}
	return wait
}

// beingSent reports whether waiting events will probably be sent soon: the API server has just accepted an event, or a rush delays the
// events. In that case, waiting events are not written to the disk. The caller must hold mu.
func (e *Events) beingSent(now time.Time) bool {
	return now.Sub(e.sent) < storeAfter || e.rushDelay(now) > 0
}
