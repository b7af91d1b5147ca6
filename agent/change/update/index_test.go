package update

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

// An indexWorld is a node that follows an index in a directory.
type indexWorld struct {
	*testing.T
	*Stager
	key     ed25519.PrivateKey // of archives and of the index
	dir     string
	index   string
	now     time.Time
	plan    rollout.Plan
	offered []string
	refused map[string]bool
	record  trial.Record
}

func newIndexWorld(t *testing.T) *indexWorld {
	t.Helper()
	s, key := stager(t)
	w := &indexWorld{T: t, Stager: s, key: key, dir: t.TempDir(), now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		refused: map[string]bool{}}
	w.index = filepath.Join(w.dir, "islet.index")
	archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "good"), key)
	text, err := os.ReadFile(filepath.Join(w.dir, "islet.tar.gz"+Suffix))
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	w.plan = rollout.Plan{Version: "0.2.0", Valid: metav1.Duration{Duration: 24 * time.Hour},
		Archives: []rollout.Archive{{Arch: runtime.GOARCH, File: "islet.tar.gz", SHA512: fmt.Sprintf("%x", r.SHA512)}},
		Rings:    []rollout.Ring{{Name: "lab", Selector: "site=lab", MinSucceeded: 1}, {Name: "rest"}}}
	return w
}

// write writes the index, signed now. The function change may change the plan, for this index and later ones.
func (w *indexWorld) write(change func(p *rollout.Plan), keys ...ed25519.PrivateKey) {
	w.Helper()
	if change != nil {
		change(&w.plan)
	}
	x, err := rollout.New(w.plan, w.now, time.Time{})
	if err != nil {
		w.Fatal(err)
	}
	x.Sign(append(keys, w.key)[0])
	if err := os.WriteFile(w.index, x.Bytes(), 0o600); err != nil {
		w.Fatal(err)
	}
}

// updater returns the Updater of a node with a label.
func (w *indexWorld) updater(site string, change func(c *Config)) *Updater {
	c := Config{Stager: *w.Stager, StagedPath: func() string { return "" }, Every: time.Hour,
		IsRefused: func(version, sum string) bool {
			return w.refused[version] || w.record.HasFailed(trial.Program{Version: version, Sum: sum})
		},
		AddUntried: func(p trial.Program, from string, how trial.Untried, why string, anew bool) {
			w.record.AddUntried(p, trial.Source{File: from}, how, why, anew, w.now)
		},
		Offer: func(s *StagedProgram, from string, anew bool) (string, bool, error) {
			w.offered = append(w.offered, fmt.Sprint(s.Version, " ", filepath.Base(from), " ", anew))
			return "id", false, nil
		},
		Index: IndexConfig{Source: w.index, Keys: w.Keys, Threshold: 1, Now: func() time.Time { return w.now },
			Node:   rollout.Node{Name: "a", Labels: map[string]string{"site": site}, Arch: runtime.GOARCH},
			Trials: func() api.UpdateState { return api.UpdateState{Trials: w.results(), Refused: w.record.Refused} }},
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// results returns the outcomes in the record.
func (w *indexWorld) results() (out []api.UpdateTrial) {
	for _, o := range w.record.History {
		result, _ := o.Result()
		out = append(out, api.UpdateTrial{ID: o.ID, Result: result, Why: o.Why})
	}
	return out
}

// take returns what the node has offered for a trial in one look at the index.
func (w *indexWorld) take(u *Updater) (string, error) {
	w.offered = nil
	err := u.stageFollowed(w.Context())
	u.setChecked(err)
	return strings.Join(w.offered, ","), err
}

func open(i int, at time.Time) func(p *rollout.Plan) {
	return func(p *rollout.Plan) { p.Rings[i].Opened = at }
}

// TestIndex checks that a node takes a version when its ring is open, and not before, not during a pause, and not if the version has
// failed. An operator's request does not wait.
func TestIndex(t *testing.T) {
	w := newIndexWorld(t)
	lab, rest := w.updater("lab", nil), w.updater("office", nil)
	step := func(what string, u *Updater, want string, state rollout.State) {
		t.Helper()
		got, err := w.take(u)
		isHeld := errors.As(err, new(heldError))
		if got != want || err != nil && !isHeld || isHeld != (state == rollout.Waiting || state == rollout.Paused) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if s := u.Status(); s.State != string(state) || s.Offered != "0.2.0" || s.Problem != "" || s.Index != w.index ||
			!s.Checked.Equal(w.now) {
			t.Errorf("%s: %+v", what, s)
		}
		w.now = w.now.Add(time.Minute)
	}
	const taken = "0.2.0 islet.tar.gz false"
	w.write(nil)
	step("closed", lab, "", rollout.Waiting)
	out, err := lab.Update(t.Context(), filepath.Join(w.dir, "islet.tar.gz"), api.UpdateOptions{}, nil)
	if err != nil || out.Version != "0.2.0" {
		t.Errorf("an operator's request: %+v, %v", out, err)
	}
	w.write(open(0, w.now))
	step("open", lab, taken, rollout.Due)
	step("another ring", rest, "", rollout.Waiting)
	w.refused["0.2.0"] = true
	step("failed", lab, "", rollout.Refused)
	w.refused["0.2.0"] = false
	w.write(func(p *rollout.Plan) { p.Paused = "stop" })
	step("paused", lab, "", rollout.Paused)
	w.write(func(p *rollout.Plan) { p.Paused, p.Rings[1].Opened = "", w.now })
	step("the next ring", rest, taken, rollout.Due)
	if s := rest.Status(); s.Ring != "rest" {
		t.Errorf("%+v", s)
	}
}

// TestIndexLies checks that a node takes nothing from an index that others have signed, that is older than one it has seen, also after a
// restart, or that names another archive than the one that is there.
func TestIndexLies(t *testing.T) {
	w := newIndexWorld(t)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.write(open(0, w.now))
	first, err := os.ReadFile(w.index)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	w.write(func(p *rollout.Plan) { p.Paused = "stop" })
	if got, err := w.take(w.updater("lab", nil)); got != "" || !errors.As(err, new(heldError)) {
		t.Errorf("paused: %q, %v", got, err)
	}
	if err := os.WriteFile(w.index, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := w.take(w.updater("lab", nil)); got != "" || !errors.As(err, new(heldError)) {
		t.Errorf("the index before the pause: %q, %v", got, err)
	}
	w.now = w.now.Add(time.Minute)
	w.plan.Paused = ""
	for name, x := range map[string]struct {
		write  func()
		change func(c *Config)
		bad    string
	}{
		"a stranger's": {write: func() { w.write(nil, stranger) }, bad: "signed by 0 of the node's keys"},
		"one of two signatures": {write: func() { w.write(nil) }, change: func(c *Config) { c.Index.Threshold = 2 },
			bad: "2 are required"},
		"another key signs the index": {write: func() { w.write(nil) }, change: func(c *Config) {
			c.Index.Keys = []release.Key{release.Key(stranger.Public().(ed25519.PublicKey))}
		}, bad: "signed by 0"},
		"no signature of the archive": {write: func() { w.write(nil, stranger) }, change: func(c *Config) {
			c.Index.Keys = []release.Key{release.Key(stranger.Public().(ed25519.PublicKey))}
			c.Keys = c.Index.Keys
		}, bad: "the release is signed by 0"},
		"a release":  {write: func() { copyFile(t, filepath.Join(w.dir, "islet.tar.gz"+Suffix), w.index) }, bad: "islet rollout 1"},
		"an archive": {write: func() { copyFile(t, filepath.Join(w.dir, "islet.tar.gz"), w.index) }, bad: "more than"},
		"nothing":    {write: func() { _ = os.Remove(w.index) }, bad: "no such file"},
		"another archive": {write: func() { w.write(func(p *rollout.Plan) { p.Archives[0].SHA512 = strings.Repeat("a", 128) }) },
			bad: "it is not the archive"},
		"another version": {write: func() { w.write(func(p *rollout.Plan) { p.Version = "0.3.0" }) },
			bad: "it is not the archive of version 0.3.0"},
		"no archive": {write: func() { w.write(func(p *rollout.Plan) { p.Archives[0].File = "none" }) }, bad: "no such file"},
	} {
		before := w.plan
		before.Archives = append([]rollout.Archive{}, w.plan.Archives...)
		x.write()
		u := w.updater("lab", x.change)
		if got, err := w.take(u); got != "" || err == nil || !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %q, %v", name, got, err)
		} else if s := u.Status(); s.Problem == "" {
			t.Errorf("%s: %+v", name, s)
		}
		w.plan = before
		w.now = w.now.Add(time.Minute)
	}
	w.write(nil)
	if got, err := w.take(w.updater("lab", nil)); got == "" || err != nil {
		t.Errorf("the right index: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, seenFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := w.take(w.updater("lab", nil)); got != "" || err == nil || errors.As(err, new(heldError)) {
		t.Errorf("a damaged record: %q, %v", got, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestIndexOfServer checks that a node fetches the archive from the directory of the index, with the query of its URL, and that it looks
// again when its time comes. It looks at the index before it takes the version, so a pause in the meantime counts.
func TestIndexOfServer(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newIndexWorld(t)
			w.now = time.Now().UTC()
			w.write(func(p *rollout.Plan) { p.Rings[0].Opened, p.Rings[0].NotBefore = w.now, w.now.Add(90*time.Minute) })
			var mu sync.Mutex // protects the next two variables
			var asked []string
			var taken time.Time
			w.Client = &http.Client{Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
				mu.Lock()
				asked = append(asked, q.URL.String())
				mu.Unlock()
				r := httptest.NewRecorder()
				text, err := os.ReadFile(filepath.Join(w.dir, filepath.Base(q.URL.Path)))
				if err != nil {
					r.WriteHeader(http.StatusNotFound)
				}
				r.Write(text)
				return r.Result(), nil
			})}
			u := w.updater("lab", func(c *Config) {
				c.Client = w.Client
				c.Index.Source, c.Index.Now = "https://example.com/a%20b/islet.index?token=x", time.Now
				c.Offer = func(*StagedProgram, string, bool) (string, bool, error) {
					mu.Lock()
					defer mu.Unlock()
					taken = time.Now()
					return "id", true, nil
				}
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- u.Run(ctx) }()
			began := time.Now()
			time.Sleep(80 * time.Minute) // in the bubble's time
			synctest.Wait()
			mu.Lock()
			if len(asked) != 2 || !taken.IsZero() || u.Status().Index != "https://example.com/a%20b/islet.index" {
				t.Errorf("%q, taken at %s, %+v", asked, taken, u.Status())
			}
			mu.Unlock()
			if paused {
				w.now = time.Now().UTC()
				w.write(func(p *rollout.Plan) { p.Paused = "stop" })
			}
			time.Sleep(15 * time.Minute) // in the bubble's time
			synctest.Wait()
			const dir = "https://example.com/a%20b/islet."
			want := []string{dir + "index?token=x", dir + "tar.gz.release?token=x", dir + "tar.gz?token=x"}
			if paused {
				want = want[:1]
			}
			mu.Lock()
			defer mu.Unlock()
			got := asked[2:]
			if fmt.Sprint(got) != fmt.Sprint(want) || taken.IsZero() != paused || !paused && taken.Sub(began) < 89*time.Minute {
				t.Errorf("paused %t: %q, taken after %s", paused, got, taken.Sub(began))
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestIndexReport checks the outcomes that the node reports, and its metrics.
func TestIndexReport(t *testing.T) {
	w := newIndexWorld(t)
	if s, changed := w.updater("lab", func(c *Config) { c.Index.Source, c.Follow = "", w.index }).Report(); s != nil || changed != nil {
		t.Errorf("a node without an index reports %+v", s)
	}
	registry := prometheus.NewRegistry()
	u := w.updater("lab", func(c *Config) {
		c.Index.Trials = func() api.UpdateState {
			first := api.UpdateTrial{ID: "islet-0.1.5-abc", Result: api.UpdateKept}
			return api.UpdateState{Left: "0.1.5", Trials: append([]api.UpdateTrial{first}, w.results()...)}
		}
	})
	registry.MustRegister(u.Collectors()...)
	if got, err := registry.Gather(); err != nil || len(got) != 0 {
		t.Errorf("metrics before the first look: %v, %v", got, err)
	}
	before, changed := u.Report()
	if before == nil || before.Left != "0.1.5" || before.Labels["site"] != "lab" || len(before.Trials) != 1 {
		t.Errorf("%+v", before)
	}
	archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "unfit"), w.key) // its self-test fails
	text, err := os.ReadFile(filepath.Join(w.dir, "islet.tar.gz"+Suffix))
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", r.SHA512)
	w.write(func(p *rollout.Plan) { p.Archives[0].SHA512, p.Rings[0].Opened = sum, w.now })
	if got, err := w.take(u); got != "" || !errors.As(err, new(untriedError)) {
		t.Errorf("%q, %v", got, err)
	}
	select {
	case <-changed:
	default:
		t.Error("nothing has changed")
	}
	id := release.ProgramID("0.2.0", sum)
	if s, _ := u.Report(); len(s.Trials) != 2 || s.Trials[1].ID != id || s.Trials[1].Result != api.UpdateUnfit {
		t.Errorf("%+v", s)
	}
	if _, err := w.take(u); err != nil || u.Status().State != string(rollout.Refused) { // it is not fetched again
		t.Errorf("%v, %+v", err, u.Status())
	}
	got, err := registry.Gather()
	if err != nil || len(got) != 1 || got[0].GetName() != "islet_update_rollout" || len(got[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	values := map[string]string{}
	for _, l := range got[0].GetMetric()[0].GetLabel() {
		values[l.GetName()] = l.GetValue()
	}
	if fmt.Sprint(values) != "map[ring:lab state:refused version:0.2.0]" {
		t.Errorf("%v", values)
	}
}

// A fakeTrials has no record. It keeps the function that confirms programs.
type fakeTrials struct {
	Trials
	confirm func(ctx context.Context, id string) (bool, error)
}

func (f *fakeTrials) StagedPath() string { return "" }

func (f *fakeTrials) CheckOffer(bool) error { return nil }

func (f *fakeTrials) IsRefused(string, string) bool { return false }

func (f *fakeTrials) ConfirmPrograms(confirm func(ctx context.Context, id string) (bool, error)) {
	f.confirm = confirm
}

// TestIndexConfirms checks that the trial of a program begins only if the index still offers it: not after a pause or another version, also
// if the agent was restarted in the meantime. A node that follows an archive has nothing to confirm.
func TestIndexConfirms(t *testing.T) {
	w := newIndexWorld(t)
	id := release.ProgramID("0.2.0", w.plan.Archives[0].SHA512)
	var edge config.Config
	edge.Dirs.State = filepath.Dir(w.Dir)
	edge.Node.Labels = map[string]string{"site": "lab"}
	edge.Edge.Update.Keys = []string{w.Keys[0].String()}
	edge.Edge.Update.Threshold = 1
	f := &fakeTrials{}
	reopen := func() {
		t.Helper()
		if _, err := Open(&edge, "0.1.0", f, func() time.Time { return w.now }, nil, w.Log); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	if f.confirm != nil {
		t.Error("a node without an index confirms programs")
	}
	edge.Edge.Update.Index = w.index
	for _, x := range []struct {
		what    string
		change  func(p *rollout.Plan)
		id      string
		due     bool
		unknown bool
	}{
		{what: "closed", id: id},
		{what: "open", change: open(0, w.now), id: id, due: true},
		{what: "another program", id: "islet-0.1.9-abc"},
		{what: "paused", change: func(p *rollout.Plan) { p.Paused = "stop" }, id: id},
		{what: "resumed", change: func(p *rollout.Plan) { p.Paused = "" }, id: id, due: true},
		{what: "expired", id: id},
		{what: "the next version", change: func(p *rollout.Plan) { p.Version = "0.3.0" }, id: id},
		{what: "removed", id: id, unknown: true},
	} {
		w.now = w.now.Add(time.Minute)
		w.write(x.change)
		switch x.what {
		case "expired":
			w.now = w.now.Add(24 * time.Hour)
		case "removed":
			_ = os.Remove(w.index)
		}
		reopen()
		if due, err := f.confirm(t.Context(), x.id); due != x.due || (err != nil) != x.unknown {
			t.Errorf("%s: %v, %v", x.what, due, err)
		}
	}
}

// TestIndexSeen checks that looks at the same time, by Run and before a trial, never forget the newest index.
func TestIndexSeen(t *testing.T) {
	w := newIndexWorld(t)
	u := w.updater("lab", nil)
	var group sync.WaitGroup
	for range 20 {
		w.now = w.now.Add(time.Minute)
		w.write(nil)
		at := w.now
		for range 2 {
			group.Go(func() {
				if _, err := u.isDue(t.Context(), "x"); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if seen, err := u.loadSeen(); err != nil || !seen.Equal(at) {
			t.Errorf("%s, not %s: %v", seen, at, err)
		}
	}
}

// TestIndexKeysUnknown checks that a node that does not know which keys count does not read the index. A key that was removed could have
// signed it.
func TestIndexKeysUnknown(t *testing.T) {
	w := newIndexWorld(t)
	w.write(nil)
	u := w.updater("lab", func(c *Config) { c.CheckOffer = func(bool) error { return trial.ErrUnknownKeys } })
	if err := u.stageFollowed(t.Context()); !errors.Is(err, trial.ErrUnknownKeys) {
		t.Error(err)
	}
	if seen, err := u.loadSeen(); err != nil || !seen.IsZero() || u.Status().Offered != "" || len(w.offered) > 0 {
		t.Errorf("%s, %v, %+v, %v", seen, err, u.Status(), w.offered)
	}
}

// TestFollowedName checks that the log names the source of a problem: the followed archive or the followed index.
func TestFollowedName(t *testing.T) {
	w := newIndexWorld(t)
	for want, c := range map[string]Config{
		" archive=/islet.tar.gz error=no\n": {Follow: "/islet.tar.gz"},
		" index=/islet.index error=no\n":    {Index: IndexConfig{Source: "/islet.index"}},
	} {
		var logged bytes.Buffer
		u := w.updater("lab", func(to *Config) {
			to.Follow, to.Index.Source, to.Log = c.Follow, c.Index.Source, slog.New(slog.NewTextHandler(&logged, nil))
		})
		u.warn(u.warn("", errors.New("no")), errors.New("no"))
		if strings.Count(logged.String(), "\n") != 1 || !strings.HasSuffix(logged.String(), want) {
			t.Errorf("%q, want %q", logged.String(), want)
		}
	}
}
