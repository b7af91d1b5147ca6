package apparmor

import (
	"errors"
	"time"
)

// unreadable is used as the mode of a profile if the kernel's list cannot be read.
const unreadable = "unreadable"

// loadDefault makes the kernel enforce the default profile.
//
//	never tried, or removed since  --> load it; all callers wait
//	failed                         --> no attempt for a minute; then one, and callers wait that
//	                                   cannot run without. Others run without the profile
//	enforced, but not by this      --> load it in the background, to replace an older version's
//	process                            rules
//	enforced                       --> nothing
//
// Everyone waits for the first attempt, because otherwise it would be random which of several
// containers that start together are confined. The time of the parser is bounded (see load). All
// profiles may be removed at any time (aa-teardown), so the kernel's list is read each time.
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

// decide returns what to do about a profile in this mode: wait for the attempt t, which decide
// starts if necessary, or continue with err.
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
	case mode != "" && now.Before(h.loaded.Add(pause)): // loaded by this process just now: another attempt would change nothing
		return nil, false, nil
	case h.failed == nil, needed && due:
		return h.try(), true, nil
	case due:
		h.try()
	}
	return nil, false, h.failed
}

// try returns the attempt in progress, and starts one if there is none. The caller holds mu.
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
	old := false // a profile that was loaded before is still enforced
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
		h.log.Warn("AppArmor's default profile of an earlier start is still loaded and could not be replaced", "error", err)
	default:
		h.log.Warn("AppArmor is on, but containers run without its default profile", "error", err)
	}
}
