package trial

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func sent(text string) *Configuration { return New(text, "", nil, Source{File: text + ".yaml"}, noon) }

// This helper returns a configuration that an operator has requested.
func asked(text string) *Configuration {
	c := sent(text)
	c.Asked = true
	return c
}

func configMap(text string) *Configuration {
	return New(text, "", nil, Source{Namespace: "kube-system", Name: "fleet"}, noon)
}

func program(version string) *Configuration {
	return WithProgram(nil, Program{Version: version, Sum: version, Path: "/x"}, Source{File: "u"}, noon)
}

// This helper offers the configuration c and reports whether it will be tried.
func (r *Record) takes(c *Configuration, asked bool) bool {
	c.Asked = asked
	tried, _ := r.Assign(c, asked)
	return tried
}

func TestLife(t *testing.T) {
	var r Record
	a, b := sent("a"), sent("b")
	if r.EverSent() || r.Select(true) != nil {
		t.Fatal("a node without a remote configuration uses one")
	}
	if !r.takes(a, true) || r.takes(a, true) || !r.Begin(Facts{}, "boot", noon) {
		t.Fatal("a is not tried")
	}
	if r.Select(false) != nil || r.Select(true) != a {
		t.Error("the configuration on trial is used outside the trial")
	}
	if r.takes(b, true) || r.takes(configMap("b"), false) || r.takes(program("2.0.0"), true) {
		t.Error("another change was accepted during the trial of a")
	}
	if !r.Accept(noon.Add(time.Minute)) || r.Good != a || r.Before != nil || r.Assigned != nil || r.Select(false) != a {
		t.Errorf("a is not good: %+v", r)
	}
	r.takes(b, true)
	r.Begin(Facts{}, "boot", noon)
	if !r.FailTrial("the node is not Ready", false, noon) || r.Good != a || r.Select(true) != a || r.Failed.Why != "the node is not Ready" {
		t.Errorf("a is not used any more: %+v", r)
	}
	if r.takes(configMap("b"), false) {
		t.Error("the failed configuration is tried again without a request")
	}
	if !r.takes(b, true) || r.Failed != nil {
		t.Error("an operator's request for a repeated trial is rejected")
	}
	if r.takes(a, true) || r.Assigned != nil || r.Begin(Facts{}, "", noon) {
		t.Error("the good one is tried again")
	}
	if n := len(r.History); n != 2 || r.History[0].Why != "" || r.History[0].Took != 60 || r.History[1].Why == "" {
		t.Errorf("history: %+v", r.History)
	}
	local := New("", "", nil, Source{}, noon)
	if !r.takes(local, true) || !r.Begin(Facts{}, "", noon) || r.Select(true) != local || !r.Accept(noon) || r.Good != nil || r.Before != a {
		t.Errorf("back to the node's own files: %+v", r)
	}
}

// TestInterrupted checks that a power cut does not count as a failure of the configuration. The number of repeated trials is limited.
func TestInterrupted(t *testing.T) {
	var r Record
	r.takes(sent("a"), true)
	for i := range Attempts {
		if !r.Begin(Facts{}, "", noon) {
			t.Fatalf("trial %d did not begin", i+1)
		}
		r.FailTrial("the machine went off", true, noon)
	}
	if r.Begin(Facts{}, "", noon) || r.Failed == nil || r.Assigned != nil {
		t.Errorf("the trial is repeated without a limit: %+v", r)
	}
	for i, o := range r.History {
		if last := i == Attempts-1; o.Undecided == last || len(r.History) != Attempts {
			t.Errorf("outcome %d of %d: %+v", i, len(r.History), o)
		}
	}
	if r.FailTrial("again", false, noon) || r.Accept(noon) {
		t.Error("a trial that had not begun ended")
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	if r, err := Load(dir); err != nil || r.EverSent() {
		t.Fatalf("%+v, %v", r, err)
	}
	var r Record
	r.takes(sent("a"), true)
	r.Begin(Facts{Pods: map[string]bool{"u": true}}, "boot", noon)
	if err := Save(dir, r); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(dir, File))
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	have, err := Load(dir)
	r.Format, r.ReadBy, r.unknownFields = Format, readBy, have.unknownFields
	if err != nil || len(have.unknownFields) > 0 || !reflect.DeepEqual(have, r) {
		t.Errorf("read %+v, wrote %+v (%v)", have, r, err)
	}
	for what, content := range map[string]string{
		"cut":     `{"format":1,"good":{"id":"a`,
		"changed": `{"format":1,"good":{"id":"abc","kubelet":"other"}}`,
		"none":    `{"format":0}`,
		"empty":   ``,
		"trial":   `{"format":1,"trial":{"began":"2026-11-23T12:00:00Z"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, File), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Load(dir); err == nil || r.EverSent() || !IsDamaged(err) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	if r, err := Load(filepath.Join(dir, File)); err == nil || r.EverSent() || IsDamaged(err) { // dir/File is not a directory
		t.Errorf("a path that cannot be read: %+v, %v", r, err)
	}
	if err := SetAside(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err != nil {
		t.Error(err)
	}
}

// TestNewer checks the record of a newer islet that was replaced by this version. The agent preserves unknown fields for the newer version.
// A record that this version cannot read stays unchanged.
func TestNewer(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"format":2,"readBy":1,"followed":"x","leftVersion":"3.0.0","new":{"a":[1,2]}}`)
	r, err := Load(dir)
	if err != nil || r.Left != "3.0.0" {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Followed, r.Left = "y", ""
	if err := Save(dir, r); err != nil {
		t.Fatal(err)
	}
	var have map[string]any
	data, err := os.ReadFile(filepath.Join(dir, File))
	if err := errors.Join(err, json.Unmarshal(data, &have)); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"format": 2.0, "readBy": 1.0, "followed": "y", "new": map[string]any{"a": []any{1.0, 2.0}}}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("stored is %v, want %v", have, want)
	}
	for _, text := range []string{`{"format":3}`, `{"format":3,"readBy":2,"good":7}`} {
		write(text)
		if r, err := Load(dir); !errors.Is(err, ErrNewer) || r.EverSent() || IsDamaged(err) {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

func TestJudge(t *testing.T) {
	before := Facts{Pods: map[string]bool{"a": true, "b": false}, Reach: "it never could"}
	known := map[string]bool{"a": true, "b": true}
	well := Facts{Known: known, Pods: map[string]bool{"a": true, "b": false}, Reach: "still not"}
	for name, c := range map[string]struct {
		facts Facts
		want  Verdict
		why   string
	}{
		"as before":      {well, Good, ""},
		"a pod ends":     {Facts{Reach: "no", Known: known}, Good, ""},
		"a pod is held":  {Facts{Reach: "no", Known: known, Held: []string{"a", "c"}}, Waiting, "1 pods that ran would end"},
		"a pod is lost":  {Facts{Reach: "no", Known: map[string]bool{"a": true}}, Waiting, "1 pods that ran are not known"},
		"not ready":      {Facts{Known: known, Pods: map[string]bool{"a": false}}, Waiting, "1 pods are not ready"},
		"no link":        {Facts{Link: "refused"}, Waiting, "API server cannot be reached: refused"},
		"node not ready": {Facts{Node: "no network"}, Waiting, "not Ready: no network"},
		"pressure":       {Facts{Pressure: []string{"MemoryPressure"}}, Bad, "MemoryPressure"},
		"ended":          {Facts{Rejected: map[string]string{"a": "OutOfpods"}}, Bad, "OutOfpods"},
		"a new one":      {Facts{Known: known, Rejected: map[string]string{"c": "OutOfpods"}}, Good, ""},
	} {
		j := Judge{Before: before, HealthyFor: time.Minute}
		j.Evaluate(noon, c.facts)
		v, why := j.Evaluate(noon.Add(time.Minute), c.facts)
		if v != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q", name, v, why)
		}
	}
	j := Judge{Before: before, HealthyFor: time.Minute}
	if j.Evaluate(noon, well); j.Outage(well) {
		t.Error("a healthy node is reported as an outage")
	}
	for i, f := range []Facts{{Link: "refused"}, {Known: known, Held: []string{"a"}}, {Known: map[string]bool{"a": true}}} {
		j := Judge{Before: before, HealthyFor: time.Minute}
		if j.Evaluate(noon, f); !j.Outage(f) {
			t.Errorf("%d: not reported as an outage", i)
		}
		f.Node = "no network"
		if j.Outage(f) {
			t.Errorf("%d: reported as an outage", i)
		}
	}
	j.Evaluate(noon, well)
	j.Evaluate(noon.Add(50*time.Second), Facts{Link: "gone"})
	if v, _ := j.Evaluate(noon.Add(70*time.Second), well); v != Waiting {
		t.Error("the pause has no effect")
	}
	if v, _ := j.Evaluate(noon.Add(130*time.Second), well); v != Good {
		t.Error("the trial does not succeed after a pause")
	}
}
