package configure

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/release"
)

// This helper returns a program with an existing staged file and an existing installed file.
func staged(t *testing.T) trial.Program {
	dir := t.TempDir()
	p := trial.Program{Version: "0.2.0", Sum: strings.Repeat("ab", 64), Path: filepath.Join(dir, "islet-1.new"), Installed: filepath.Join(dir, "islet")}
	if err := errors.Join(os.WriteFile(p.Path, []byte("new"), 0o755), os.WriteFile(p.Installed, []byte("old"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return p
}

// This helper starts an agent, offers it the program p and begins the trial. It returns the role of the guard process.
func (w *world) offered(p trial.Program) guard.Role {
	w.Helper()
	r := w.start(guard.Role{})
	if id, tried, err := r.OfferProgram(p, "/a.tar.gz", true, false); err != nil || !tried || id != "islet-0.2.0-abababababab" ||
		r.StagedPath() != p.Path {
		w.Fatalf("%s %v %v", id, tried, err)
	}
	if !r.beginTrial(w.Context(), r.record.Assigned) {
		w.Fatal("no trial began")
	}
	again := (*Restart)(nil)
	if err := <-r.end; !errors.As(err, &again) {
		w.Fatal(err)
	}
	return again.Role
}

// TestProgram checks that a program that passes its trial replaces the installed one. The configuration stays the same.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, ""), staged(t)
		w.tried(kubeletHead + "maxPods: 17\n")
		rec, err := trial.Load(w.dir)
		if err != nil || !rec.Accept(time.Now()) || trial.Save(w.dir, rec) != nil {
			t.Fatal(err)
		}
		if role := w.offered(p); role.Kind != guard.Guard || role.Program != p.Path || role.Installed != p.Installed ||
			role.Deadline != trial.ProgramDeadline {
			t.Errorf("%+v", role)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(p.Installed), release.KeptFile("0.0.9")), []byte("older"), 0o755); err != nil {
			t.Fatal(err)
		}
		child := w.start(guard.Role{Kind: guard.Trial})
		if child.cfg.Kubelet.MaxPods != 17 || child.healthyFor() != trial.ProgramHealthy {
			t.Errorf("the trial uses maxPods %d and lasts %v", child.cfg.Kubelet.MaxPods, child.healthyFor())
		}
		if why := child.acceptTrial(); why != "" {
			t.Error(why)
		}
		if b, err := os.ReadFile(p.Installed); err != nil || string(b) != "new" {
			t.Errorf("%q, %v", b, err)
		}
		if kept, err := os.ReadFile(filepath.Join(filepath.Dir(p.Installed), release.KeptFile("0.1.0"))); err != nil || string(kept) != "old" {
			t.Errorf("the replaced program is not kept: %q, %v", kept, err)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(p.Installed), release.KeptFile("*"))); err != nil || len(left) != 1 {
			t.Errorf("kept programs: %v, %v", left, err)
		}
		if !child.Show().Trying {
			t.Error("an agent that is ending accepts another trial")
		}
		next := w.start(guard.Role{After: true})
		if s := next.Show(); next.cfg.Kubelet.MaxPods != 17 || s.Assigned != nil || s.Failed != nil || s.Active.ID == "local" ||
			!slices.Contains(w.recorded(), ReasonUpdated) || next.StagedPath() != "" {
			t.Errorf("%+v, events %v", s, w.recorded())
		}
	})
}

// TestProgramFull checks that an installed program counts as good even if the agent cannot store that result. A configuration does not
// count as good in this case, and neither does a program that cannot be installed.
func TestProgramFull(t *testing.T) {
	for name, c := range map[string]struct{ program, absent, good bool }{"a program": {true, false, true}, "no place": {true, true, false}, "a configuration": {}} {
		w, p := newWorld(t, ""), staged(t)
		if c.program {
			w.offered(p)
		} else {
			w.tried(kubeletHead + "maxPods: 17\n")
		}
		child := w.start(guard.Role{Kind: guard.Trial})
		full := filepath.Join(w.dir, "."+trial.File+".new")
		if err := os.Mkdir(full, 0o700); err != nil { // this directory has the temporary file's name, so the record cannot be stored
			t.Fatal(err)
		}
		if c.absent {
			if err := os.Remove(p.Path); err != nil {
				t.Fatal(err)
			}
		}
		if why := child.acceptTrial(); (why == "") != c.good {
			t.Errorf("%s: %q", name, why)
		}
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		if !c.good {
			continue
		}
		next := w.startAs("0.2.0", guard.Role{After: true, Why: "the agent ended"})
		if s := next.Show(); s.Assigned != nil || s.Failed != nil || !slices.Contains(w.recorded(), ReasonUpdated) {
			t.Errorf("%s: %+v, events %v", name, s, w.recorded())
		}
	}
}

// TestProgramEnds checks that an unsuccessful trial leaves the installed program unchanged. A failure is recorded. An interrupted trial is
// repeated, unless the rename has already installed the program.
func TestProgramEnds(t *testing.T) {
	for name, c := range map[string]struct {
		role    guard.Role
		version string
		renamed bool
		again   bool // the trial is repeated
		why     string
	}{
		"it crashed":              {role: guard.Role{After: true, Why: "exit status 2"}, why: "exit status 2"},
		"killed":                  {again: true},
		"killed after the rename": {renamed: true, version: "0.2.0"},
		"the file was removed":    {renamed: true},
	} {
		w, p := newWorld(t, ""), staged(t)
		w.offered(p)
		if c.renamed {
			if err := os.Remove(p.Path); err != nil {
				t.Fatal(err)
			}
		}
		s := Begin(c.role, w.args)
		cfg, _, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		k, err := Open(Config{Config: cfg, Start: s, Version: cmp.Or(c.version, "0.1.0"), IsNewer: newer, Node: w.facts, Events: eventtest.Sink(w.record), End: func(error) {}, Now: time.Now, Log: discard()})
		if err != nil {
			t.Fatal(err)
		}
		got := k.Show()
		if (got.Assigned != nil) != c.again || (got.FailedUpdate != nil) != (c.why != "") || got.FailedUpdate != nil &&
			got.FailedUpdate.Why != c.why || got.Failed != nil {
			t.Errorf("%s: %+v", name, got)
		}
		if b, err := os.ReadFile(p.Installed); err != nil || string(b) != "old" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if k.IsRefused(p.Version, p.Sum) != (c.why != "") || k.IsRefused(p.Version, "0"+p.Sum) || k.IsRefused("0.3.0", p.Sum) {
			t.Errorf("%s: refused: %v", name, k.IsRefused(p.Version, p.Sum))
		}
		if _, tried, _ := k.OfferProgram(p, "/a.tar.gz", false, false); c.why != "" && tried {
			t.Errorf("%s: the trial is repeated without a request", name)
		}
	}
}

// TestProgramIsNoConfiguration checks that the failure of a program version is reported, but not as a problem of the node's configuration.
func TestProgramIsNoConfiguration(t *testing.T) {
	w := newWorld(t, "")
	w.offered(staged(t))
	child := w.start(guard.Role{Kind: guard.Trial})
	if s := child.Show(); child.Conditions() != nil || s.Active.ID != "local" || !s.Trying {
		t.Errorf("on trial: %+v, %+v", child.Conditions(), s)
	}
	r := w.start(guard.Role{After: true, Why: "it crashes"})
	if s := r.Show(); s.Problem != "" || s.FailedUpdate == nil || r.Conditions() != nil || r.Annotations()[keys.ConfigurationStatus] != "" {
		t.Errorf("%+v, %+v", s, r.Conditions())
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0],
		"islet-0.2.0-abababababab has failed, islet 0.1.0 keeps running: it crashes") {
		t.Errorf("%q", p)
	}
	if !slices.Contains(w.recorded(), ReasonFailedProgram) || slices.Contains(w.recorded(), ReasonFailed) {
		t.Errorf("events %v", w.recorded())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Collectors()...)
	if got, err := registry.Gather(); err != nil || len(got) != 2 || got[0].GetName() != "islet_update_result" ||
		got[1].GetName() != "islet_update_trials" || got[1].Metric[1].GetGauge().GetValue() != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestProgramInterrupted checks that interrupted trials and cancelled versions do not count as failures.
func TestProgramInterrupted(t *testing.T) {
	w := newWorld(t, "")
	w.offered(staged(t))
	for i, r := range []*run{w.start(guard.Role{}), w.startAs("0.2.1", guard.Role{})} {
		got, any := r.countTrials(true)
		if want := map[string]int{"accepted": 0, "failed": 0, "interrupted": i + 1}; !any || !maps.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
		if h := r.Show().History[i]; !h.Interrupted || h.Why == "" {
			t.Errorf("%+v", h)
		}
	}
}

// TestProgramOlder checks that a trial is cancelled if the running program is already newer when the trial begins. A downgrade that an
// operator requested is tried and recorded.
func TestProgramOlder(t *testing.T) {
	w, p := newWorld(t, ""), staged(t)
	w.offered(p)
	r := w.startAs("0.2.1", guard.Role{}) // a package manager has installed a newer version
	if s := r.Show(); s.Assigned != nil || s.FailedUpdate != nil || !strings.Contains(s.History[0].Why, "the agent was killed") ||
		!strings.Contains(s.History[1].Why, "the running islet 0.2.1 is not older") {
		t.Errorf("%+v", s)
	}
	back := func(from, left string) {
		t.Helper()
		p := staged(t)
		r := w.startAs(from, guard.Role{})
		if _, tried, err := r.OfferProgram(p, "/a.tar.gz", true, false); err != nil || !tried || !r.beginTrial(t.Context(), r.record.Assigned) {
			t.Fatal(tried, err)
		}
		r = w.startAs(from, guard.Role{}) // the trial was interrupted
		if r.StagedPath() != p.Path || !r.beginTrial(t.Context(), r.record.Assigned) {
			t.Errorf("no second trial began: %+v", r.Show())
		}
		if why := w.startAs("0.2.0", guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
			t.Error(why)
		}
		k := w.startAs("0.2.0", guard.Role{After: true})
		if k.record.Left != left || left != "" && !k.IsRefused(left, "any") || k.IsRefused("0.11.0", "any") {
			t.Errorf("from %s: the record says that %q was left, want %q", from, k.record.Left, left)
		}
	}
	back("0.1.0", "")
	back("0.4.0", "0.4.0")
	back("0.3.0", "0.4.0")
	back("0.2.0", "0.4.0")
	back("0.10.0", "0.10.0")
}

// TestProgramBusy checks that an offer from a followed source waits while another version or configuration is assigned. An operator's
// request replaces an assigned version of the followed source.
func TestProgramBusy(t *testing.T) {
	w, p := newWorld(t, ""), staged(t)
	r := w.start(guard.Role{})
	if err := errors.Join(r.CheckOffer(true), r.CheckOffer(false)); err != nil {
		t.Error(err)
	}
	if _, tried, err := r.OfferProgram(p, "https://example.com/a", false, false); err != nil || !tried {
		t.Fatal(tried, err)
	}
	cm := trial.New(kubeletHead+"maxPods: 30\n", "", nil, trial.Source{Namespace: "kube-system", Name: "fleet"}, time.Now())
	if r.CheckOffer(true) != nil || r.CheckOffer(false) == nil || !errors.Is(r.Offer(cm, false, false), ErrBusy) {
		t.Errorf("a version from the followed source waits: %v, %v", r.CheckOffer(true), r.CheckOffer(false))
	}
	other := p
	other.Version = "0.3.0"
	if _, tried, err := r.OfferProgram(other, "/b", true, false); err != nil || !tried {
		t.Error(tried, err)
	}
	if r.CheckOffer(true) == nil || r.CheckOffer(false) == nil {
		t.Error("a version that an operator requested is replaced by another one")
	}
	if err := w.apply(r, kubeletHead+"maxPods: 17\n"); err != nil || r.StagedPath() != "" || r.CheckOffer(true) != nil {
		t.Errorf("the last request of an operator: %v, %q", err, r.StagedPath())
	}
	r.beginTrial(t.Context(), r.record.Assigned)
	if !errors.Is(r.CheckOffer(true), ErrBusy) || !errors.Is(w.start(guard.Role{Kind: guard.Trial}).CheckOffer(true), ErrBusy) {
		t.Error("the agent accepts a program during a trial")
	}
}

// TestProgramWithoutLink checks that a program that came with a bundle is tried although the link is down, because the bundle may be on a
// stick. A program of a followed archive waits for the link.
func TestProgramWithoutLink(t *testing.T) {
	for _, bundled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, p := newWorld(t, ""), staged(t)
			w.link = link.State{Phase: link.Down}
			p.Bundled = bundled
			r := w.start(guard.Role{})
			if _, tried, err := r.OfferProgram(p, "/a", false, false); err != nil || !tried {
				t.Fatal(tried, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if begins := r.waitForHealth(ctx) != nil; begins != bundled {
				t.Errorf("bundled %v: the trial begins: %v", bundled, begins)
			}
		})
	}
}

// TestProgramConfirmed checks that a program of a followed source, which has waited for the link, is tried only after a confirmation. If it
// is not to be tried any longer, or if that stays unknown, it is given up, and the next program can be offered.
func TestProgramConfirmed(t *testing.T) {
	unknown := errors.New("the server does not answer")
	for name, c := range map[string]struct {
		asked, bundled bool
		errors         int // before the answer
		due            bool
		begins         bool
		looks          int
	}{
		"due":              {due: true, begins: true, looks: 1},
		"not due":          {looks: 1},
		"unknown, due":     {errors: 3, due: true, begins: true, looks: 4},
		"unknown, not due": {errors: 3, looks: 4},
		"unknown":          {errors: 1000, due: true, looks: maxLooks},
		"of an operator":   {asked: true, begins: true},
		"of a bundle":      {bundled: true, begins: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, p := newWorld(t, ""), staged(t)
			p.Bundled = c.bundled
			var up atomic.Bool
			w.facts.Link = func() link.State {
				if up.Load() {
					return link.State{Phase: link.Up}
				}
				return link.State{Phase: link.Down}
			}
			r, looks := w.start(guard.Role{}), 0
			r.ConfirmPrograms(func(_ context.Context, id string) (bool, error) {
				if !up.Load() || id != r.record.Assigned.ID || w.isHeld.Load() {
					t.Errorf("%s: a look for %s while the link is up: %v, while bundles are held: %v", name, id, up.Load(), w.isHeld.Load())
				}
				if looks++; looks <= c.errors {
					return false, unknown
				}
				return c.due, nil
			})
			if _, tried, err := r.OfferProgram(p, "/a", c.asked, false); err != nil || !tried {
				t.Fatal(tried, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			if !c.asked && !c.bundled {
				time.Sleep(5 * time.Hour) // in the bubble's time
				synctest.Wait()
				if s := r.Show(); s.Assigned == nil || s.Trying || looks != 0 {
					t.Errorf("%s: without a link: %+v, %d looks", name, s, looks)
				}
			}
			up.Store(true)
			time.Sleep(time.Hour) // in the bubble's time
			synctest.Wait()
			s := r.Show()
			if s.Trying != c.begins || looks != c.looks {
				t.Errorf("%s: %+v, %d looks", name, s, looks)
			}
			if _, err := os.Stat(p.Path); (err == nil) != c.begins || (r.CheckOffer(false) == nil) == c.begins ||
				(s.Assigned != nil) != c.begins || s.FailedUpdate != nil || w.isHeld.Load() != c.begins {
				t.Errorf("%s: %+v, %v, %v", name, s, err, r.CheckOffer(false))
			}
			if rec, err := trial.Load(w.dir); err != nil || (rec.Assigned != nil) != c.begins ||
				!c.begins && (len(rec.History) != 1 || !rec.History[0].Withdrawn) {
				t.Errorf("%s: stored: %+v, %v", name, rec, err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProgramBundleBegins checks that a program waits again if the trial of a bundle begins while the program is confirmed.
func TestProgramBundleBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, ""), staged(t)
		r := w.start(guard.Role{})
		r.ConfirmPrograms(func(context.Context, string) (bool, error) {
			w.bundle.Store(!w.isHeld.Load())
			return true, nil
		})
		if _, tried, err := r.OfferProgram(p, "/a", false, false); err != nil || !tried {
			t.Fatal(tried, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Hour) // in the bubble's time
		synctest.Wait()
		if s := r.Show(); s.Assigned == nil || s.Trying || w.isHeld.Load() || !w.bundle.Load() {
			t.Errorf("two trials at the same time: %+v, held %v, bundle %v", s, w.isHeld.Load(), w.bundle.Load())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestProgramMissing checks that a program whose file is missing, as on a board that was restored from a backup, is given up before its
// trial. It does not count as a failure.
func TestProgramMissing(t *testing.T) {
	w, p := newWorld(t, ""), staged(t)
	if _, tried, err := w.start(guard.Role{}).OfferProgram(p, "/a", false, false); err != nil || !tried {
		t.Fatal(tried, err)
	}
	if r := w.start(guard.Role{}); r.StagedPath() != p.Path {
		t.Errorf("%+v", r.Show())
	}
	if err := os.Remove(p.Path); err != nil {
		t.Fatal(err)
	}
	r := w.start(guard.Role{})
	if s := r.Show(); s.Assigned != nil || s.FailedUpdate != nil || r.IsRefused(p.Version, p.Sum) || r.CheckOffer(false) != nil {
		t.Errorf("%+v", s)
	}
	if rec, err := trial.Load(w.dir); err != nil || rec.Assigned != nil || len(rec.History) != 1 || !rec.History[0].Withdrawn {
		t.Errorf("stored: %+v, %v", rec, err)
	}
}
