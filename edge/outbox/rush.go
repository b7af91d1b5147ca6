package outbox

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// During a rush many pods start or end at once. The API server is then busy with their tokens and
// statuses, which users wait for. So events that are not warnings are delayed.
const (
	few       = 20 // events within a lull that are not a rush yet
	lull      = time.Second
	late      = 10 * time.Second // maximum delay of an event
	mostWaits = maxEvents * 3 / 4
)

// yields returns the delay of events that are not warnings; 0: there is no rush. The caller holds
// mu.
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
		n++
		if n > mostWaits || now.Sub(r.last) >= late {
			return 0
		}
	}
	return wait
}

// underway reports whether the API server accepts events, or soon will: waiting events are not
// written to the disk then. The caller holds mu.
func (e *Events) underway(now time.Time) bool {
	return now.Sub(e.sent) < storeAfter || e.yields(now) > 0
}
