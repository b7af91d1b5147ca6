package plugins

import (
	"time"

	"github.com/islet-edge/islet/internal/retry"
)

// What registers again and again waits in between, the longer the more often it does: each
// time the cluster is told, drivers are asked, and pods try again.
const (
	firstCalm = 200 * time.Millisecond
	lastCalm  = 30 * time.Second
	forgotten = time.Minute // after the last time
)

// A flap is a path at which something has registered of late.
type flap struct {
	last  time.Time
	again retry.Backoff
}

// calm gives how long what is new at a path is to wait before it is registered: it does not
// wait unless something was there of late.
func (r *Registry) calm(path string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for p, f := range r.flaps {
		if now.Sub(f.last) > forgotten {
			delete(r.flaps, p)
		}
	}
	f := r.flaps[path]
	switch {
	case f != nil:
		wait := f.again.Next(0)
		f.last = now.Add(wait)
		return wait
	case len(r.flaps) < maxSockets:
		r.flaps[path] = &flap{last: now, again: retry.Backoff{First: firstCalm, Soon: lastCalm, Most: lastCalm}}
	}
	return 0
}
