package plugins

import (
	"time"

	"github.com/islet-edge/islet/internal/retry"
)

// Delays for a plugin that registers repeatedly. The delays limit the cost, because each registration updates the
// cluster, calls the driver and makes pods retry.
const (
	firstCalm  = 200 * time.Millisecond
	lastCalm   = 30 * time.Second
	delayReset = time.Minute // time after the last registration until the delay is reset
)

// A recentRegistration is a path at which a plugin has registered recently.
type recentRegistration struct {
	last    time.Time
	backoff retry.Backoff
}

// registrationDelay returns the delay before a new socket at a path is registered. It returns 0 unless a plugin has registered
// there recently.
func (r *Registry) registrationDelay(path string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for p, f := range r.recentRegistrations {
		if now.Sub(f.last) > delayReset {
			delete(r.recentRegistrations, p)
		}
	}
	f := r.recentRegistrations[path]
	switch {
	case f != nil:
		wait := f.backoff.Next(0)
		f.last = now.Add(wait)
		return wait
	case len(r.recentRegistrations) < maxSockets:
		r.recentRegistrations[path] = &recentRegistration{last: now, backoff: retry.Backoff{FirstWindow: firstCalm,
			SecondWindow: lastCalm, MaxWindow: lastCalm}}
	}
	return 0
}
