package trial

import (
	"errors"
	"slices"
)

// ErrBusy is returned while a trial is in progress.
var ErrBusy = errors.New("another configuration or version is on trial; wait until the trial has ended (islet config)")

// ErrUnknownKeys means that the node accepts no bundle and no version of islet by itself, because a configuration that it cannot read may
// have removed keys.
var ErrUnknownKeys = errors.New("the node does not know which keys of bundles and versions count")

// The source of an offer determines whether the offer is assigned, and whether it replaces an assigned configuration
// or program that waits for its trial:
//
//	the offer of         a followed ConfigMap           a followed archive       an operator
//	is assigned if       its content changed            it has not failed        always
//	and replaces
//	 - a ConfigMap's     yes                            no                       yes (after a program it is offered again)
//	 - an operator's     yes                            no                       yes
//	 - a program         no (it is offered again)       no                       yes

// Assign handles an offer. If asked is true, an operator made the offer. Assign returns whether the offer is assigned
// now, and whether the record has changed and must be stored.
func (r *Record) Assign(c *Configuration, asked bool) (tried, changed bool) {
	switch {
	case r.Trial != nil:
		return false, false
	case c.Program != nil:
		return r.assignProgram(c, asked)
	case !asked:
		return r.assignFollowed(c)
	}
	waits := r.waitingConfiguration()
	switch {
	// The same configuration is already assigned, and its trial does not require the link.
	case waits != nil && waits.ID == c.ID && waits.Asked && (waits.DespitePods || !c.DespitePods):
		return false, false
	case configurationName(r.Good) == c.ID:
		if waits == nil && r.Failed == nil {
			return false, false
		}
		r.clearAssignment()
		return false, true
	}
	r.set(c)
	return true, true
}

// waitingConfiguration returns the assigned configuration. It returns nil if a program is assigned, or if nothing is
// assigned.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) waitingConfiguration() *Configuration {
	if r.Assigned == nil || r.Assigned.Program != nil {
		return nil
	}
	return r.Assigned
}

// HasProgram reports whether a program is assigned or on trial.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) HasProgram() bool { return r.Assigned != nil && r.Assigned.Program != nil }

// assignFollowed handles the offer of a followed ConfigMap. If the node no longer follows one, c stands for the
// node's own files.
func (r *Record) assignFollowed(c *Configuration) (tried, changed bool) {
	if r.HasProgram() || r.Followed == c.ID {
		return false, false
	}
	known := r.Followed != ""
	r.Followed = c.ID
	waits := r.waitingConfiguration()
	switch {
	case waits != nil && waits.ID == c.ID:
		return false, true
	case configurationName(r.Good) == c.ID:
		r.Failed = nil
		if known || waits != nil && waits.Source.Name != "" {
			r.clearAssignment() // the good configuration is requested again
		}
		return false, true
	case r.Failed != nil && r.Failed.ID == c.ID:
		return false, true
	}
	r.set(c)
	return true, true
}

// StopFollowing records that the node follows no ConfigMap, and cancels the assignment of a ConfigMap's configuration. It
// reports whether the record has changed and must be stored.
func (r *Record) StopFollowing() (changed bool) {
	if r.Trial != nil || r.Followed == "" || r.Followed == "local" {
		return false
	}
	r.Followed = "local"
	if waits := r.waitingConfiguration(); waits != nil && !waits.Asked {
		r.set(nil)
	}
	return true
}

// HasFailed reports whether the program is one of those whose trials failed most recently.
func (r *Record) HasFailed(p Program) bool { return slices.Contains(r.Refused, p.id()) }

// assignProgram handles the offer of a program.
func (r *Record) assignProgram(c *Configuration, asked bool) (tried, changed bool) {
	if r.Assigned != nil && (!asked || r.Assigned.ID == c.ID && r.Assigned.Asked && (r.Assigned.DespitePods || !c.DespitePods)) ||
		!asked && r.HasFailed(*c.Program) {
		return false, false
	}
	if waits := r.waitingConfiguration(); waits != nil && !waits.Asked {
		r.Followed = "" // the ConfigMap is offered again
	}
	r.set(c)
	return true, true
}

// set assigns a configuration or program. If c is nil, nothing is assigned any more.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) set(c *Configuration) {
	r.Assigned, r.Attempts, r.Was, r.Vetoed = c, 0, nil, nil
	switch {
	case c == nil:
	case c.Program != nil:
		r.FailedProgram = nil
	default:
		r.Failed = nil
	}
}

// clearAssignment cancels the assignment of a configuration, and clears the last failure.
func (r *Record) clearAssignment() {
	r.Failed = nil
	if !r.HasProgram() {
		r.set(nil)
	}
}
