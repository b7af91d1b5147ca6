package trial

import (
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// Untried says how a program has failed before its trial.
type Untried string

// The values of Untried. They are stored in the record.
const (
	Unfit   Untried = "unfit"   // the program says that it does not fit this machine, or it is another program than its archive says
	Crashed Untried = "crashed" // its self-test has crashed
	Late    Untried = "late"    // its self-test did not end in time
	Unknown Untried = "unknown" // its self-test has no result, and this machine may be the cause
)

// maxCrashes is the number of self-tests after which a program has failed, if each of them crashes or does not end in time. A busy machine
// may be the cause of one. A self-test with another result, except Unknown, starts the count again.
const maxCrashes = 3

// AddUntried adds the outcome of a program that has failed before its trial. It returns whether the program counts as failed. Then only an
// operator's request tries it again. If asked is true, an operator has requested the program, and it does not count as failed: the operator
// sees the error, and the node has not chosen the program.
func (r *Record) AddUntried(p Program, from Source, how Untried, why string, asked bool, now time.Time) (failed bool) {
	c := &Configuration{ID: p.id(), Program: &p, Source: from}
	crashes := 1
	for _, o := range slices.Backward(r.History) {
		if o.ID != c.ID || o.Untried == Unknown {
			continue
		}
		if o.Untried != Crashed && o.Untried != Late {
			break
		}
		crashes++
	}
	failed = !asked && (how == Unfit || how != Unknown && crashes >= maxCrashes)
	if failed {
		r.setFailure(c, why, now, now)
	} else {
		if n := len(r.History) - 1; n >= 0 && how != Crashed && how != Late { // these are counted, so all stay
			if o := r.History[n]; o.ID == c.ID && o.Untried == how && o.Undecided {
				r.History = r.History[:n] // a node may repeat this self-test every minute, which would displace other outcomes
			}
		}
		r.addUnsuccessful(c, why, true, now, now)
	}
	r.History[len(r.History)-1].Untried = how // addOutcome has copied the history
	return failed
}

// Result returns the result that reports have for an outcome of a program (see api.UpdateTrial), and the outcome that metrics have for it.
func (o *Outcome) Result() (report, metric string) {
	switch {
	case o.Why == "":
		return api.UpdateKept, "accepted"
	case o.Untried != "" && o.Undecided:
		return api.UpdateUntested, "interrupted"
	case o.Undecided:
		return api.UpdateInterrupted, "interrupted"
	case o.Untried != "":
		return api.UpdateUnfit, "failed"
	}
	return api.UpdateFailed, "failed"
}
