package outbox

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// A rush is when many pods start or end at once. The API server is busy with their
// tokens and statuses then, which people wait for, and each of them has events: those
// that are no warnings give way.
const (
	few       = 20 // events within a lull are no rush
	lull      = time.Second
	late      = 10 * time.Second // an event does not wait longer than this
	mostWaits = maxEvents * 3 / 4
)

// yields is for how long events that are no warnings give way; 0: they do not. The caller
// holds mu.
func (e *Events) yields(now time.Time) time.Duration {
	if len(e.kept) <= few {
		return 0
	}
	wait := lull - now.Sub(e.kept[len(e.kept)-1-few].last) // the newest are at the end
	if wait <= 0 {
		return 0
	}
	n := 0
	for _, r := range e.kept {
		if r.mute || r.told == r.count || r.key.kind != v1.EventTypeNormal {
			continue
		}
		if n++; n > mostWaits || now.Sub(r.last) >= late {
			return 0
		}
	}
	return wait
}

// underway says that the API server takes events, or soon will: what waits for its turn
// is not written to the disk meanwhile. The caller holds mu.
func (e *Events) underway(now time.Time) bool {
	return now.Sub(e.sent) < storeAfter || e.yields(now) > 0
}
