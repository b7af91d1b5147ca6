package configure

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

// untried returns a function that adds several outcomes to a record: those of a program that fails before its trial.
func untried(how trial.Untried, times int) func(r *trial.Record, p trial.Program) {
	return func(r *trial.Record, p trial.Program) {
		for range times {
			r.AddUntried(p, trial.Source{File: "/a.tar.gz"}, how, "it does not run", false, time.Now())
		}
	}
}

// tried returns a function that assigns a program for a trial, and then ends this trial.
func tried(end func(r *trial.Record)) func(r *trial.Record, p trial.Program) {
	return func(r *trial.Record, p trial.Program) {
		r.Assigned = nil
		r.Assign(trial.WithProgram(nil, p, trial.Source{File: "/a.tar.gz"}, time.Now()), false)
		end(r)
	}
}

// TestProgramOutcomes lists all outcomes of a version, and checks what the record, the metric, the report and the count of a rollout say
// about each of them, also after a restart.
func TestProgramOutcomes(t *testing.T) {
	begun := func(end func(r *trial.Record)) func(r *trial.Record, p trial.Program) {
		return tried(func(r *trial.Record) {
			r.Begin(trial.Facts{}, "", time.Now())
			end(r)
		})
	}
	for name, c := range map[string]struct {
		add            func(r *trial.Record, p trial.Program)
		metric, report string
		failed         bool // only an operator tries it again, and a rollout counts it
	}{
		"accepted":       {begun(func(r *trial.Record) { r.Accept(time.Now()) }), "accepted", "kept", false},
		"failed":         {begun(func(r *trial.Record) { r.FailTrial("bad", false, time.Now()) }), "failed", "failed", true},
		"interrupted":    {begun(func(r *trial.Record) { r.FailTrial("off", true, time.Now()) }), "interrupted", "interrupted", false},
		"pods":           {begun(func(r *trial.Record) { r.Veto("pods", []string{"a"}, time.Now()) }), "interrupted", "interrupted", false},
		"given up":       {tried(func(r *trial.Record) { r.CancelAssignment("paused", time.Now()) }), "interrupted", "interrupted", false},
		"unfit":          {untried(trial.Unfit, 1), "failed", "unfit", true},
		"crashed":        {untried(trial.Crashed, 2), "interrupted", "untested", false},
		"always crashes": {untried(trial.Crashed, 3), "failed", "unfit", true},
		"late":           {untried(trial.Late, 2), "interrupted", "untested", false},
		"always late":    {untried(trial.Late, 3), "failed", "unfit", true},
		"no result":      {untried(trial.Unknown, 9), "interrupted", "untested", false},
		"asked": {func(r *trial.Record, p trial.Program) {
			r.AddUntried(p, trial.Source{}, trial.Unfit, "it does not fit", true, time.Now())
		}, "interrupted", "untested", false},
		"crashed between tests without a result": {func(r *trial.Record, p trial.Program) {
			for _, how := range []trial.Untried{trial.Crashed, trial.Unknown, trial.Late, trial.Unknown} {
				untried(how, 1)(r, p)
			}
		}, "interrupted", "untested", false},
	} {
		w, p := newWorld(t, ""), staged(t)
		var r trial.Record
		c.add(&r, trial.Program{Version: p.Version, Sum: "0" + p.Sum[1:]}) // of another program, which does not count
		h := len(r.History)
		c.add(&r, p)
		r.Assigned = nil // an interrupted trial would be repeated
		if err := trial.Save(w.dir, r); err != nil {
			t.Fatal(err)
		}
		k := w.start(guard.Role{})
		id := release.ProgramID(p.Version, p.Sum)
		u := k.ProgramTrials()
		if last := u.Trials[len(u.Trials)-1]; last.ID != id || last.Result != c.report || (last.Why == "") != (c.report == api.UpdateKept) {
			t.Errorf("%s: report %+v, want %s", name, last, c.report)
		}
		got, _ := k.countTrials(true)
		before := maps.Clone(got)
		k.record.History = k.record.History[:len(k.record.History)-1]
		if got, _ = k.countTrials(true); before[c.metric] != got[c.metric]+1 {
			t.Errorf("%s: metric %v after %v, want %s", name, before, got, c.metric)
		}
		if k.IsRefused(p.Version, p.Sum) != c.failed || api.IsUpdateFailure(c.report) != c.failed || (k.Show().FailedUpdate != nil) != c.failed {
			t.Errorf("%s: %+v", name, k.record)
		}
		u.Arch, u.Trials, u.Refused = "arm64", u.Trials[h:], nil
		x, err := rollout.New(rollout.Plan{Version: p.Version, Rings: []rollout.Ring{{Name: "all"}}, Valid: metav1.Duration{Duration: time.Hour},
			Archives: []rollout.Archive{{Arch: u.Arch, File: "a", SHA512: p.Sum}}}, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		count := x.Count([]rollout.Report{{Key: "k", State: &api.BundleState{Node: "n", Update: &u,
			Versions: api.BundleVersions{Islet: "0.1.0"}}}})
		hasNote := c.failed || c.report == api.UpdateUntested
		if got := count.Rings[0]; got.Nodes != 1 || (got.Failed == 1) != c.failed || (len(count.Notes) > 0) != hasNote {
			t.Errorf("%s: %+v", name, count)
		}
	}
}

// TestUntriedProgram checks that a failure before a trial is stored and reported like a failure during a trial. If the failure cannot be
// stored, it counts until the restart.
func TestUntriedProgram(t *testing.T) {
	w, p := newWorld(t, ""), staged(t)
	k := w.start(guard.Role{})
	add := func(how trial.Untried) {
		k.AddUntriedProgram(trial.Program{Version: p.Version, Sum: p.Sum}, "/a.tar.gz", how, "it does not run", false)
	}
	add(trial.Unknown)
	if k.IsRefused(p.Version, p.Sum) || len(w.recorded()) > 0 {
		t.Errorf("a self-test without a result: %+v, events %v", k.record, w.recorded())
	}
	k.AddUntriedProgram(trial.Program{Version: p.Version, Sum: p.Sum}, "/a.tar.gz", trial.Unfit, "it does not fit", true)
	if k.IsRefused(p.Version, p.Sum) || len(w.recorded()) > 0 || len(k.Problems()) > 0 {
		t.Errorf("an operator's request: %+v, events %v", k.record, w.recorded())
	}
	full := filepath.Join(w.dir, "."+trial.File+".new")
	if err := os.Mkdir(full, 0o700); err != nil { // this directory has the temporary file's name, so the record cannot be stored
		t.Fatal(err)
	}
	add(trial.Unfit)
	if !k.IsRefused(p.Version, p.Sum) || !slices.Contains(w.recorded(), ReasonFailedProgram) {
		t.Errorf("%+v, events %v", k.record, w.recorded())
	}
	if k = w.start(guard.Role{}); k.IsRefused(p.Version, p.Sum) {
		t.Errorf("%+v", k.record)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	add(trial.Unfit)
	k = w.start(guard.Role{})
	s := k.Show()
	if !k.IsRefused(p.Version, p.Sum) || s.FailedUpdate == nil || s.Failed != nil || len(s.History) != 3 ||
		s.History[0].Untried != "unknown" || !s.History[0].Interrupted || s.History[1].Untried != "unfit" || !s.History[1].Interrupted ||
		s.History[2].Untried != "unfit" || s.History[2].Interrupted {
		t.Errorf("%+v", s)
	}
	if got := k.Problems(); len(got) != 1 || !strings.Contains(got[0], "it does not run") {
		t.Errorf("%q", got)
	}
	if _, tried, err := k.OfferProgram(p, "/a.tar.gz", false, false); tried || err != nil {
		t.Errorf("offered by a source: %v, %v", tried, err)
	}
	if _, tried, err := k.OfferProgram(p, "/a.tar.gz", true, false); !tried || err != nil || k.Show().FailedUpdate != nil {
		t.Errorf("offered by an operator: %v, %v", tried, err)
	}
}
