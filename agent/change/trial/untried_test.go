package trial

import (
	"testing"
	"time"
)

// TestCrashes checks that a program has failed after three self-tests that crash or are late. Those of other programs do not count, nor do
// those before a self-test that the program has passed. A self-test without a result changes nothing.
func TestCrashes(t *testing.T) {
	const passed, other Untried = "passed", "other" // the outcome of a trial, and a crash of another program
	for _, c := range []struct {
		hows   []Untried
		failed bool
	}{
		{[]Untried{Crashed, Late, Crashed}, true},
		{[]Untried{Late, Late, Unknown}, false},
		{[]Untried{Late, Unknown, Crashed, Unknown, Unknown, Late}, true},
		{[]Untried{Crashed, other, Crashed, other}, false},
		{[]Untried{Crashed, other, Crashed, other, Crashed}, true},
		{[]Untried{Crashed, Crashed, passed, Crashed, Late}, false},
		{[]Untried{Crashed, Crashed, passed, Crashed, Unknown, Late, Crashed}, true},
		{[]Untried{Crashed, passed, Unfit}, true},
	} {
		var r Record
		failed := false
		for _, how := range c.hows {
			p := program("a")
			switch how {
			case passed:
				r.takes(p, false)
				r.CancelAssignment("it is paused", noon)
				continue
			case other:
				p, how = program("b"), Crashed
			}
			failed = r.AddUntried(*p.Program, Source{File: "a"}, how, "bad", false, noon.Add(time.Second))
		}
		if failed != c.failed || r.HasFailed(*program("a").Program) != c.failed || (r.FailedProgram != nil) != c.failed {
			t.Errorf("%v: %v, %+v", c.hows, failed, r)
		}
	}
}
