package trial

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// TestCrashes checks that a program has failed after three self-tests that crash or are late. Self-tests of other programs do not count,
// nor do self-tests before one that the program has passed. A self-test without a result changes nothing.
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

// TestRepeatedSelfTests checks that the record keeps only the last of repeated self-tests without a result. So they do not displace other
// outcomes.
func TestRepeatedSelfTests(t *testing.T) {
	var r Record
	r.takes(sent("a"), false)
	r.CancelAssignment("it is not wanted", noon)
	p := program("a").Program
	var last time.Time
	add := func(how Untried, asked bool) {
		last = last.Add(time.Second)
		before := r
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		r.AddUntried(*p, Source{File: "a"}, how, "bad", asked, last)
		if now, err := json.Marshal(before); err != nil || string(now) != string(text) { // the caller may restore it
			t.Errorf("the record before has changed: %s, was %s", now, text)
		}
	}
	for range 2 * maxHistory {
		add(Unknown, false)
	}
	add(Crashed, false)
	add(Crashed, false)
	for range 2 * maxHistory {
		add(Unknown, false)
	}
	for range 2 * maxHistory {
		add(Unfit, true)
	}
	add(Unfit, false)
	var got []Untried
	for _, o := range r.History {
		got = append(got, o.Untried)
	}
	if !slices.Equal(got, []Untried{"", Unknown, Crashed, Crashed, Unknown, Unfit, Unfit}) || !r.History[5].At.Equal(last.Add(-time.Second)) {
		t.Errorf("%+v", r.History)
	}
}
