package trial

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// This helper returns the record of a node that uses a ConfigMap's configuration.
func followed(t *testing.T) Record {
	var r Record
	if !r.takes(configMap("good"), false) || !r.Begin(Facts{}, "", noon) || !r.Accept(noon) {
		t.Fatalf("%+v", r)
	}
	return r
}

// TestFollowed checks that a ConfigMap has an effect only when it changes. While it is unchanged, an operator's configuration stays in use,
// a waiting configuration continues to wait, and a failed configuration is not retried.
func TestFollowed(t *testing.T) {
	r := followed(t)
	r.takes(asked("mine"), true)
	r.Begin(Facts{}, "", noon)
	r.FailTrial("the machine went off", true, noon)
	if r.takes(configMap("good"), false) || r.Assigned == nil || r.Attempts != 1 {
		t.Errorf("the operator's configuration does not wait any more: %+v", r)
	}
	r.Begin(Facts{}, "", noon)
	r.Accept(noon)
	if r.takes(configMap("good"), false) || r.Good.Kubelet != "mine" {
		t.Errorf("the operator's configuration was replaced: %+v", r)
	}
	if !r.takes(configMap("other"), false) {
		t.Error("a changed ConfigMap is ignored")
	}
	r.Begin(Facts{}, "", noon)
	r.FailTrial("bad", false, noon)
	if r.takes(configMap("other"), false) || r.Failed == nil {
		t.Errorf("the failed configuration: %+v", r)
	}
	if r.takes(configMap("good"), false); r.Assigned == nil || r.Failed != nil {
		t.Errorf("the good configuration: %+v", r)
	}
	if tried, changed := r.Assign(asked("mine"), true); tried || !changed || r.Assigned != nil {
		t.Errorf("an operator requests the good configuration: %+v", r)
	}
	if r.StopFollowing(); !r.takes(configMap("good"), false) {
		t.Error("a ConfigMap that is followed again is ignored")
	}

	// An earlier islet has written this record. It did not store the followed content.
	r = followed(t)
	r.Followed, r.Failed = "", &Failure{ID: "x"}
	r.takes(asked("mine"), true)
	if tried, changed := r.Assign(configMap("good"), false); tried || !changed || r.Assigned == nil || r.Failed != nil {
		t.Errorf("a record of an earlier islet: %+v", r)
	}
}

// TestWaitsForLink checks that an operator's configuration replaces a ConfigMap's configuration that waits for the link. Without this, an
// operator might be unable to change a disconnected node.
func TestWaitsForLink(t *testing.T) {
	for name, c := range map[string]*Configuration{"the same": asked("new"), "another one": asked("mine"), "a program": program("2.0.0")} {
		r := followed(t)
		r.takes(configMap("new"), false)
		if !r.takes(c, true) || r.Assigned != c {
			t.Errorf("%s: %+v", name, r)
		}
		r.Begin(Facts{}, "", noon)
		r.Accept(noon)
		if again := r.takes(configMap("new"), false); again != (name == "a program") {
			t.Errorf("%s: the ConfigMap's configuration is tried: %v", name, again)
		}
	}
}

// TestPrograms checks that failures of programs and of configurations are recorded separately. A failed program does not cause a new trial
// of a failed configuration, and a failed configuration does not cause a new trial of a failed program.
func TestPrograms(t *testing.T) {
	r := followed(t)
	r.takes(program("2.0.0"), false)
	r.Begin(Facts{}, "", noon)
	r.FailTrial("it crashes", false, noon)
	if _, changed := r.Assign(configMap("good"), false); changed || r.FailedProgram == nil || r.Failed != nil {
		t.Errorf("the reason for the failure is lost: %+v", r)
	}
	trials := 0
	for range 10 {
		for _, c := range []*Configuration{configMap("bad"), program("2.0.0"), program("3.0.0")} {
			if r.takes(c, false) {
				trials++
				r.Begin(Facts{}, "", noon)
				r.FailTrial("bad", false, noon)
			}
		}
	}
	if trials != 2 {
		t.Errorf("%d trials of two bad configurations or programs, want 2", trials)
	}
	if r.Failed == nil || r.FailedProgram == nil || r.FailedProgram.ID != program("3.0.0").ID {
		t.Errorf("%+v", r)
	}
	if !r.takes(program("2.0.0"), true) || r.takes(configMap("other"), false) || r.takes(program("4.0.0"), false) {
		t.Errorf("a program that an operator requested: %+v", r)
	}
	if r.takes(program("2.0.0"), true) {
		t.Error("the same request of an operator is accepted twice")
	}
	if r.Begin(Facts{}, "", noon); !r.Accept(noon) || r.FailedProgram != nil || r.Failed == nil || len(r.Refused) != 1 || r.Good.Kubelet != "good" {
		t.Errorf("%+v", r)
	}
	for i := range 2 * maxRefused {
		r.takes(program(strings.Repeat("1", i+1)+".0.0"), true)
		r.Begin(Facts{}, "", noon)
		r.FailTrial("bad", false, noon)
	}
	if len(r.Refused) != maxRefused || r.Refused[maxRefused-1] != r.FailedProgram.ID {
		t.Errorf("the record has %d refused programs", len(r.Refused))
	}
	r = Record{Format: Format, Failed: &Failure{ID: program("2.0.0").ID, Why: "it crashes"}} // an earlier islet's record
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Decode(data); err != nil || r.Failed != nil || r.FailedProgram.Why != "it crashes" ||
		r.takes(program("2.0.0"), false) || r.EverSent() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestProgramWaitsForLink checks that the trial of a followed program waits for the link. An operator's request for the same program does
// not wait.
func TestProgramWaitsForLink(t *testing.T) {
	var r Record
	r.takes(program("2.0.0"), false)
	c := program("2.0.0")
	c.Asked = true
	if !r.takes(c, true) || r.Assigned != c {
		t.Errorf("%+v", r.Assigned)
	}
}

// TestLeft checks that a downgrade records the version that it replaces.
func TestLeft(t *testing.T) {
	var r Record
	c := program("1.0.0")
	c.Program.Left = "2.0.0"
	r.takes(c, true)
	if r.Begin(Facts{}, "", noon); r.Left != "" || !r.Accept(noon) || r.Left != "2.0.0" {
		t.Errorf("%+v", r)
	}
	r.takes(program("3.0.0"), true)
	r.CancelAssignment("it runs", noon)
	if r.Assigned != nil || r.FailedProgram != nil || len(r.History) != 2 || r.History[1].Why != "it runs" {
		t.Errorf("%+v", r)
	}
}

// TestBest checks that a repeated trial is also compared with the node's state before the first trial. The first trial may have made the
// node less healthy.
func TestBest(t *testing.T) {
	var r Record
	r.takes(sent("a"), true)
	r.Begin(Facts{Reach: "no", Pressure: []string{"DiskPressure", "PIDPressure"}, Pods: map[string]bool{"a": true, "b": false, "gone": true}}, "", noon)
	r.FailTrial("off", true, noon)
	r.Begin(Facts{Link: "no", Node: "no", Reach: "not yet", Pressure: []string{"MemoryPressure", "PIDPressure"}, Pods: map[string]bool{"a": false, "b": true, "new": false}}, "", noon)
	want := Facts{Reach: "not yet", Pressure: []string{"PIDPressure"}, Pods: map[string]bool{"a": true, "b": true, "new": false}}
	if !reflect.DeepEqual(r.Trial.Before, want) {
		t.Errorf("%+v, want %+v", r.Trial.Before, want)
	}
	r.FailTrial("bad", false, noon)
	r.takes(sent("b"), true)
	if r.Begin(Facts{Link: "no"}, "", noon); r.Trial.Before.Link != "no" {
		t.Error("another configuration is judged by the former state")
	}
}
