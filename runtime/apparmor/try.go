package apparmor

import (
	"errors"
	"time"
)

// unreadable is the mode of a profile where the kernel's list cannot be read.
const unreadable = "unreadable"

// loadDefault has the kernel enforce the default profile.
//
//	never tried, or gone since --> a try, and all wait for it
//	failed                     --> no try for a minute; then one, for which those wait that
//	                               cannot run without. The others run without it
//	enforced, but not of us    --> a try that nobody waits for: an older version's rules are replaced
//	enforced                   --> nothing
//
// A first try that is waited for decides for all: else it would be chance which of the containers
// that start together are confined. What the parser needs is bounded (see load). Somebody may
// remove all profiles at any time (aa-teardown), so the kernel is asked each time.
func (h *Host) loadDefault(needed bool) error {
	mode, err := h.mode(DefaultProfile)
	if err != nil {
		mode = unreadable
	}
	t, wait, err := h.decide(mode, needed)
	if wait {
		<-t.done
		return t.err
	}
	return err
}

// decide says what to do about a profile in this mode: wait for a try, which it has started if
// it had to, or run with this result.
func (h *Host) decide(mode string, needed bool) (t *try, wait bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch due := !now.Before(h.again); {
	case enforced(mode):
		if h.loaded.IsZero() && due {
			h.try()
		}
		return nil, false, nil
	case mode != "" && now.Before(h.loaded.Add(pause)): // by us, just now: another try would change nothing
		return nil, false, nil
	case h.failed == nil, needed && due:
		return h.try(), true, nil
	case due:
		h.try()
	}
	return nil, false, h.failed
}

// try is one that is under way, begun if there is none. The caller holds mu.
func (h *Host) try() *try {
	if h.trying == nil {
		t := &try{done: make(chan struct{})}
		h.trying = t
		h.background.Go(func() { h.run(t) })
	}
	return h.trying
}

func (h *Host) run(t *try) {
	err := h.load(DefaultProfile)
	t.err = err
	old := false // there is one that will do
	if err != nil {
		if mode, e := h.mode(DefaultProfile); e == nil && enforced(mode) {
			t.err, old = nil, true
		}
	}
	h.mu.Lock()
	before := h.failed
	h.failed, h.again, h.trying = err, time.Time{}, nil
	switch {
	case err == nil:
		h.loaded = time.Now()
	case !errors.Is(err, errNoParser):
		h.again = time.Now().Add(pause)
	}
	h.mu.Unlock()
	close(t.done)
	switch {
	case err == nil && before != nil:
		h.log.Info("AppArmor's default profile is loaded: containers that start from now on get it")
	case err == nil || before != nil:
	case old:
		h.log.Warn("AppArmor's default profile is one of an earlier start: it cannot be replaced", "error", err)
	default:
		h.log.Warn("AppArmor is on, but containers run without its default profile", "error", err)
	}
}
