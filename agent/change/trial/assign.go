package trial

import "slices"

// Who offers something decides what follows:
//
//	                 a ConfigMap                     an archive               a person
//	counts if        it changed                      it did not fail before   always
//	what waits:
//	of a ConfigMap   gives way                       stays                    gives way (to a program: comes again)
//	of a person      gives way                       stays                    gives way
//	a program        stays: it is offered again      stays                    gives way

// Assign takes what came: of a person who asks, or of what is followed. Tried: it is what is to
// be tried now. Changed: the record is another one.
func (r *Record) Assign(c *Configuration, asked bool) (tried, changed bool) {
	switch {
	case r.Trial != nil:
		return false, false
	case c.Program != nil:
		return r.program(c, asked)
	case !asked:
		return r.follow(c)
	}
	waits := r.waits()
	switch {
	// it waits for no link, as what was not asked for does
	case waits != nil && waits.ID == c.ID && waits.Asked && (waits.Despite || !c.Despite):
		return false, false
	case name(r.Good) == c.ID:
		if waits == nil && r.Failed == nil {
			return false, false
		}
		r.forget()
		return false, true
	}
	r.set(c)
	return true, true
}

// waits is the configuration that is to be tried.
func (r *Record) waits() *Configuration {
	if r.Assigned == nil || r.Assigned.Program != nil {
		return nil
	}
	return r.Assigned
}

// Tries reports whether a program is to be tried.
func (r *Record) Tries() bool { return r.Assigned != nil && r.Assigned.Program != nil }

// follow takes what the ConfigMap has that is followed, or that none is any more.
func (r *Record) follow(c *Configuration) (tried, changed bool) {
	if r.Tries() || r.Followed == c.ID {
		return false, false
	}
	known := r.Followed != ""
	r.Followed = c.ID
	waits := r.waits()
	switch {
	case waits != nil && waits.ID == c.ID:
		return false, true
	case name(r.Good) == c.ID:
		r.Failed = nil
		if known || waits != nil && waits.Source.Name != "" {
			r.forget() // what is good is wanted again: nothing is left to try
		}
		return false, true
	case r.Failed != nil && r.Failed.ID == c.ID:
		return false, true
	}
	r.set(c)
	return true, true
}

// Unfollow says that none is followed, so that what one had is not to be tried any more.
// Changed: the record is another one.
func (r *Record) Unfollow() (changed bool) {
	if r.Trial != nil || r.Followed == "" || r.Followed == "local" {
		return false
	}
	r.Followed = "local"
	if waits := r.waits(); waits != nil && !waits.Asked {
		r.set(nil)
	}
	return true
}

// Knows reports whether a program has failed, of the last ones that did.
func (r *Record) Knows(p Program) bool { return slices.Contains(r.Refused, p.id()) }

// program takes a program.
func (r *Record) program(c *Configuration, asked bool) (tried, changed bool) {
	if r.Assigned != nil && (!asked || r.Assigned.ID == c.ID && r.Assigned.Asked && (r.Assigned.Despite || !c.Despite)) ||
		!asked && r.Knows(*c.Program) {
		return false, false
	}
	if waits := r.waits(); waits != nil && !waits.Asked {
		r.Followed = "" // it comes again
	}
	r.set(c)
	return true, true
}

// set makes something what is to be tried.
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

// forget leaves no configuration to be tried.
func (r *Record) forget() {
	r.Failed = nil
	if !r.Tries() {
		r.set(nil)
	}
}
