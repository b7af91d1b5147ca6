package outbox

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// A rush is a time in which many pods start or end. The API server is then busy with the tokens and statuses of these pods, for which
// users wait. Therefore events that are not warnings are delayed.
const (
	calmEvents    = 20 // number of events within rushWindow that are not a rush yet
	rushWindow    = time.Second
	maxEventDelay = 10 * time.Second // maximum delay of an event
	maxWaiting    = maxEvents * 3 / 4
)

// rushDelay returns the delay of events that are not warnings, or 0 if there is no rush. The caller must
// hold mu.
func (e *Events) rushDelay(now time.Time) time.Duration {
	if len(e.kept) <= calmEvents {
		return 0
	}
	wait := rushWindow - now.Sub(e.kept[len(e.kept)-1-calmEvents].last) // the newest events are at the end
	if wait <= 0 {
		return 0
	}
	n := 0
	for _, r := range e.kept {
		if r.overBudget || r.told == r.count || r.key.kind != v1.EventTypeNormal {
			continue
		}
		n++
		if n > maxWaiting || now.Sub(r.last) >= maxEventDelay {
			return 0
		}
	}
	return wait
}

// beingSent reports whether the API server accepts events, or is expected to accept them soon. In that case, waiting events are not
// written to the disk. The caller must hold mu.
func (e *Events) beingSent(now time.Time) bool {
	return now.Sub(e.sent) < storeAfter || e.rushDelay(now) > 0
}
