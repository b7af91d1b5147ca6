package trial

import (
	"slices"
	"time"
)

// Refuse records why a configuration of a followed source is not tried. It also cancels the assignment of an
// earlier configuration of that source. It does not cancel the assignment of a program, or of a configuration that an
// operator requested.
func (r *Record) Refuse(c *Configuration, why string, now time.Time) {
	if r.Trial != nil {
		return
	}
	if waits := r.waitingConfiguration(); waits != nil && !waits.Asked {
		r.set(nil)
	}
	r.Followed = c.ID
	r.setFailure(c, why, now, now)
}

// Begin starts the trial of the assigned configuration. It returns false if there is none. If a trial is repeated, it
// is judged by the best facts that were collected before any of the attempts.
func (r *Record) Begin(before Facts, boot string, now time.Time) bool {
	if r.Assigned == nil || r.Trial != nil {
		return false
	}
	if r.Was != nil {
		before = bestFacts(*r.Was, before)
	}
	r.Attempts++
	r.Was = &before
	r.Trial = &Trial{Began: now, Boot: boot, Before: before}
	return true
}

// Updated reports whether the last trial accepted a program.
func (r *Record) Updated() bool {
	n := len(r.History)
	return n > 0 && r.History[n-1].Program && r.History[n-1].Why == ""
}

// Accept makes the configuration on trial the good one. It returns false if there is no trial.
func (r *Record) Accept(now time.Time) bool {
	c := r.Assigned
	if r.Trial == nil || c == nil {
		return false
	}
	r.addOutcome(Outcome{ID: configurationName(c), From: c.sourceName(), At: now, Took: secondsBetween(r.Trial.Began, now),
		Program: c.Program != nil})
	r.Trial = nil
	r.set(nil)
	if p := c.Program; p != nil { // a program does not change the good configuration
		r.FailedProgram = nil
		r.Refused = slices.DeleteFunc(slices.Clone(r.Refused), func(id string) bool { return id == c.ID })
		if p.Left != "" {
			r.Left = p.Left
		}
		return true
	}
	r.Earlier = nil
	if c.Source.Bundle != "" {
		r.Earlier = r.Before
	}
	r.Before, r.Good, r.Failed = r.Good, c, nil
	if c.IsLocal() {
		r.Good = nil
	}
	return true
}

// FailTrial ends a trial without success. The good configuration stays in use. After an interruption, such as a power cut,
// the trial is repeated, up to Attempts times in total.
func (r *Record) FailTrial(why string, interrupted bool, now time.Time) bool {
	if r.Trial == nil || r.Assigned == nil {
		r.Trial = nil
		return false
	}
	c, began := r.Assigned, r.Trial.Began
	r.Trial = nil
	if interrupted && r.Attempts < Attempts {
		r.addUnsuccessful(c, why, true, began, now)
		return true
	}
	r.set(nil)
	r.setFailure(c, why, began, now)
	return true
}

// Veto ends a trial that failed only because of pods, or pressures that pods cause. The trial is repeated, up to
// Attempts times in total. The repeated trials ignore these pods and pressures: see Judge.
func (r *Record) Veto(why string, by []string, now time.Time) bool {
	if r.Trial == nil || r.Assigned == nil || r.Attempts >= Attempts {
		return r.FailTrial(why, false, now)
	}
	v := Vetoes{Trials: 1, By: slices.Clone(by)}
	if r.Vetoed != nil {
		v.Trials += r.Vetoed.Trials
		v.By = append(v.By, r.Vetoed.By...)
	}
	slices.Sort(v.By)
	v.By = slices.Compact(v.By)
	c, began := r.Assigned, r.Trial.Began
	r.Trial, r.Vetoed = nil, &v
	r.addUnsuccessful(c, why+": the trial is repeated without regard to these pods and pressures", true, began, now)
	return true
}

// CancelAssignment cancels the assignment without recording a failure.
func (r *Record) CancelAssignment(why string, now time.Time) {
	if c := r.Assigned; c != nil && r.Trial == nil {
		r.set(nil)
		r.addWithdrawn(c, why, now)
	}
}

func (r *Record) setFailure(c *Configuration, why string, began, now time.Time) {
	f := &Failure{ID: configurationName(c), Why: truncateReason(why), At: now}
	if c.Program == nil {
		r.Failed = f
	} else {
		r.FailedProgram = f
		r.Refused = append(slices.DeleteFunc(slices.Clone(r.Refused), func(id string) bool { return id == f.ID }), f.ID)
		r.Refused = r.Refused[max(0, len(r.Refused)-maxRefused):]
	}
	r.addUnsuccessful(c, why, false, began, now)
}

// addWithdrawn adds the outcome of a configuration or program that is given up, although no trial of it has failed.
func (r *Record) addWithdrawn(c *Configuration, why string, now time.Time) {
	r.addUnsuccessful(c, why, true, now, now)
	r.History[len(r.History)-1].Withdrawn = true // addOutcome has copied the history
}

// addUnsuccessful records the outcome of a trial without success.
func (r *Record) addUnsuccessful(c *Configuration, why string, undecided bool, began, now time.Time) {
	r.addOutcome(Outcome{ID: configurationName(c), From: c.sourceName(), At: now, Took: secondsBetween(began, now),
		Why: truncateReason(why), Undecided: undecided,
		Program: c.Program != nil})
}

// addOutcome is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) addOutcome(o Outcome) {
	r.History = append(slices.Clone(r.History), o)
	r.History = r.History[max(0, len(r.History)-maxHistory):]
}

func truncateReason(why string) string {
	if len(why) > maxWhy {
		return why[:maxWhy] + " ..."
	}
	return why
}

// secondsBetween returns the number of seconds between two times. It returns 0 if the clock was set back.
func secondsBetween(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }
