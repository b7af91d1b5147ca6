package apparmor

import (
	"errors"
	"time"
)

// unreadableMode is used as the mode of a profile if the list of profiles cannot be read.
const unreadableMode = "unreadable"

// loadDefault loads the default profile if the kernel does not enforce it.
//
//	no attempt yet, or removed     --> load it; all callers wait
//	last attempt failed            --> after a minute, try again; callers that need the profile
//	                                   wait, others continue without it
//	enforced, but loaded by an     --> load it in the background, because its rules may be
//	earlier process                    outdated
//	enforced                       --> nothing
//
// All callers wait for the first attempt, so that containers that start at the same time are all
// confined. The wait is limited by parserTimeout. loadDefault reads the kernel's list of profiles
// in each call, because a tool such as aa-teardown may remove all profiles at any time.
func (h *Host) loadDefault(needed bool) error {
	mode, err := h.readMode(DefaultProfile)
	if err != nil {
		mode = unreadableMode
	}
	t, wait, err := h.decideLoad(mode, needed)
	if wait {
		<-t.done
		return t.err
	}
	return err
}

// decideLoad starts an attempt if the mode of the default profile requires it; see loadDefault. If wait
// is true, the caller must wait for the attempt t. Otherwise err is the result of loadDefault.
func (h *Host) decideLoad(mode string, needed bool) (t *attempt, wait bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch due := !now.Before(h.nextAttempt); {
	case isEnforced(mode):
		if h.loaded.IsZero() && due {
			h.startAttempt()
		}
		return nil, false, nil
	case mode != "" && now.Before(h.loaded.Add(minPause)): // this process has just loaded it
		return nil, false, nil
	case h.lastErr == nil, needed && due:
		return h.startAttempt(), true, nil
	case due:
		h.startAttempt()
	}
	return nil, false, h.lastErr
}

// startAttempt returns the running attempt. It starts one if there is none. The caller holds mu.
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
	stillEnforced := false // whether the profile of an earlier process is enforced
	if err != nil {
		if mode, e := h.readMode(DefaultProfile); e == nil && isEnforced(mode) {
			t.err, stillEnforced = nil, true
		}
	}
	h.mu.Lock()
	before := h.lastErr
	h.lastErr, h.nextAttempt, h.current = err, time.Time{}, nil
	switch {
	case err == nil:
		h.loaded = time.Now()
	case !errors.Is(err, errNoParser):
		h.nextAttempt = time.Now().Add(minPause)
	}
	h.mu.Unlock()
	close(t.done)
	switch {
	case err == nil && before != nil:
		h.log.Info("AppArmor's default profile was loaded and applies to new containers")
	case err == nil || before != nil:
	case stillEnforced:
		h.log.Warn("AppArmor's default profile could not be replaced; the profile of an earlier process is still enforced", "error", err)
	default:
		h.log.Warn("AppArmor's default profile could not be loaded; containers run without it", "error", err)
	}
}
