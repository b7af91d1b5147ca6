// Package doctor looks a host over and says what keeps pods from running there,
// now or on a bad day, and what to do about it. It reads only, unless it is asked to
// fix, and needs no agent: it works on a machine before islet runs on it.
//
//	flags, or an agent that is asked --> Main --> Input
//	Input (settings, the host as files) --+
//	System (disks, programs, clock) ------+--> checks, in order --> []Finding --> Write, ExitCode
//
// Each file holds the checks of one subject. A check adds a finding for what is
// in order too, so that a report shows what was looked at.
package doctor
