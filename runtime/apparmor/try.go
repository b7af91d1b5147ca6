package apparmor

import (
	"errors"
	"time"
)

// unreadable stands for the mode of a profile if the kernel's list cannot be read.
const unreadable = "unreadable"

// loadDefault loads the default profile if the kernel does not enforce it.
//
//	never tried, or removed since  --> load it; all callers wait
//	failed                         --> no attempt for a minute; then one, and callers wait that
//	                                   cannot run without. Others run without the profile
//	enforced, but not by this      --> load it in the background, to replace an older version's
//	process                            rules
//	enforced                       --> nothing
//
// Every caller waits for the first attempt. Otherwise only some of several containers that start
// together would be confined, by chance. The wait is bounded, because load has a timeout. The
// kernel's list is read on each call, because a tool such as aa-teardown may remove all profiles at
// any time.
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

// decide returns what to do about a profile in this mode. If wait is true, the caller must wait for
// the attempt t, which decide starts if necessary; otherwise it continues with err.
func (h *Host) decide(mode string, needed bool) (t *attempt, wait bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch due := !now.Before(h.notBefore); {
	case enforced(mode):
		if h.loaded.IsZero() && due {
			h.startAttempt()
		}
		return nil, false, nil
	case mode != "" && now.Before(h.loaded.Add(pause)): // this process loaded it just now, so another attempt would change nothing
		return nil, false, nil
	case h.failed == nil, needed && due:
		return h.startAttempt(), true, nil
	case due:
		h.startAttempt()
	}
	return nil, false, h.failed
}

// startAttempt returns the attempt in progress. It starts one if there is none. The caller holds
// mu.
func (h *Host) startAttempt() *attempt {
	if h.current == nil {
		t := &attempt{done: make(chan struct{})}
		h.current = t
		h.background.Go(func() { h.run(t) })
	}
	return h.current
}

func (h *Host) run(t *attempt) {
	err := h.load(DefaultProfile)
	t.err = err
	old := false // whether a profile that was loaded earlier is still enforced
	if err != nil {
		if mode, e := h.mode(DefaultProfile); e == nil && enforced(mode) {
			t.err, old = nil, true
		}
	}
	h.mu.Lock()
	before := h.failed
	h.failed, h.notBefore, h.current = err, time.Time{}, nil
	switch {
	case err == nil:
		h.loaded = time.Now()
	case !errors.Is(err, errNoParser):
		h.notBefore = time.Now().Add(pause)
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
