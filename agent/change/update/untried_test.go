package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

// A way is a method by which a version reaches a node, such as a command, a bundle or an index.
type way struct {
	asked  bool // an operator requests the version
	change func(w *indexWorld, c *Config)
	take   func(w *indexWorld, u *Updater, file string) error
}

// update returns the way of an operator's request.
func update(o api.UpdateOptions) way {
	return way{asked: true, take: func(w *indexWorld, u *Updater, file string) error {
		_, err := u.Update(w.Context(), file, o, nil)
		return err
	}}
}

// bundled returns the way of a version in a bundle.
func bundled(anew bool) way {
	return way{asked: anew, take: func(w *indexWorld, u *Updater, file string) error {
		text, err := os.ReadFile(file + Suffix)
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		_, err = u.UpdateFrom(w.Context(), []Archive{{Name: "bundle", Release: text, Size: info.Size(),
			Open: func() (io.ReadCloser, error) { return os.Open(file) }}}, anew, nil)
		return err
	}}
}

func follow(w *indexWorld, u *Updater, _ string) error {
	_, err := w.take(u)
	return err
}

func ways() map[string]way {
	return map[string]way{
		"a command":            update(api.UpdateOptions{}),
		"a command for older":  update(api.UpdateOptions{Older: true}),
		"a bundle":             bundled(false),
		"a bundle of a person": bundled(true),
		"an archive": {take: follow, change: func(w *indexWorld, c *Config) {
			c.Index.Source, c.Follow = "", filepath.Join(w.dir, "islet.tar.gz")
		}},
		"an index": {take: func(w *indexWorld, u *Updater, file string) error {
			w.write(func(p *rollout.Plan) { p.Archives[0].SHA512, p.Rings[0].Opened = sumOf(w.T, file), w.now })
			return follow(w, u, "")
		}},
	}
}

func sumOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file + Suffix)
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", r.SHA512)
}

// TestUntried checks the record and the report of a version that does not reach its trial, after each of three attempts and for each way. A
// version counts as failed if its self-test says that it does not fit, if the program has another version, or if its self-test crashes or
// times out three times. Every other failure may be caused by a busy machine. A failed version is read again only at an operator's request,
// and an operator's request never makes a version count as failed.
func TestUntried(t *testing.T) {
	const untested, unfit = api.UpdateUntested, api.UpdateUnfit
	everyWay := []string{"unfit", "crash", "hang", "killed"} // the other failures are tested for two ways only, because the test is slow
	for how, want := range map[string][3]string{
		"unfit":  {unfit, unfit, unfit},
		"other":  {unfit, unfit, unfit},
		"text":   {unfit, unfit, unfit},
		"crash":  {untested, untested, unfit},
		"abort":  {untested, untested, unfit},
		"hang":   {untested, untested, unfit},
		"killed": {untested, untested, untested},
		"full":   {untested, untested, untested},
		// The Go runtime ends these programs with the exit code of a panic.
		"eat":     {untested, untested, untested},
		"threads": {untested, untested, untested},
	} {
		text := "no program"
		if how != "text" {
			text = program(t, how)
		}
		for name, way := range ways() {
			if name != "an index" && name != "a bundle" && !slices.Contains(everyWay, how) {
				continue
			}
			w := newIndexWorld(t)
			if how == "hang" {
				w.testTime = 50 * time.Millisecond
			}
			file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, text, w.key)
			id := release.ProgramID("0.2.0", sumOf(t, file))
			u := w.updater("lab", func(c *Config) {
				if way.change != nil {
					way.change(w, c)
				}
			})
			for i, want := range want {
				if way.asked {
					want = untested
				}
				_, changed := u.Report()
				err := way.take(w, u, file)
				refused := errors.Is(err, ErrFailed) || u.Status().State == string(rollout.Refused)
				if untried := errors.As(err, new(untriedError)); untried == refused || refused && want != unfit {
					t.Errorf("%s by %s, attempt %d: %v", how, name, i, err)
				}
				got := w.results()
				if last := len(got) - 1; last < 0 || got[last].Result != want || got[last].ID != id || got[last].Why == "" ||
					w.record.HasFailed(trial.Program{Version: "0.2.0", Sum: sumOf(t, file)}) != api.IsUpdateFailure(want) ||
					api.IsUpdateFailure(want) != (w.record.FailedProgram != nil) {
					t.Errorf("%s by %s, attempt %d: %+v, want %s", how, name, i, got, want)
				}
				if isChanged := isClosed(changed); changed != nil && isChanged != errors.As(err, new(untriedError)) {
					t.Errorf("%s by %s, attempt %d: a report is due: %v", how, name, i, isChanged)
				}
			}
			if got := left(t, w.Stager); strings.Trim(got, " ") != "islet" && got != "islet "+seenFile {
				t.Errorf("%s by %s leaves %q", how, name, got)
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestUntriedPrevious checks that the kept program has the same outcomes.
func TestUntriedPrevious(t *testing.T) {
	w := newIndexWorld(t)
	u := w.updater("lab", nil)
	kept := filepath.Join(filepath.Dir(w.Program), release.KeptFile("0.0.9"))
	if err := os.WriteFile(kept, []byte(program(t, "other")), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := u.Update(t.Context(), "", api.UpdateOptions{Back: true}, nil)
	if got := w.results(); err == nil || len(got) != 1 || got[0].Result != api.UpdateUntested || w.record.History[0].From != kept {
		t.Errorf("%v, %+v", err, w.record)
	}
}

// TestUntriedDry checks that a dry run records nothing, whatever the archive contains.
func TestUntriedDry(t *testing.T) {
	w := newIndexWorld(t)
	u := w.updater("lab", nil)
	_, changed := u.Report()
	for _, how := range []string{"unfit", "other", "crash", "good"} {
		file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, how), w.key)
		_, err := u.Update(t.Context(), file, api.UpdateOptions{Dry: true}, nil)
		if (err == nil) != (how == "good") || !reflect.DeepEqual(w.record, trial.Record{}) || isClosed(changed) {
			t.Errorf("%s: %v, %+v", how, err, w.record)
		}
	}
}

// TestUntriedStopped checks that an attempt is neither recorded as an outcome nor counted as a failure if the agent, or an operator's
// client, ends during the attempt. A self-test that cannot be started has no result. A self-test whose time has ended before its start is
// late. The error of a self-test has a limited length.
func TestUntriedStopped(t *testing.T) {
	w := newIndexWorld(t)
	file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "hang"), w.key)
	u := w.updater("lab", nil)
	ctx, stop := context.WithCancel(t.Context())
	_, err := u.Update(ctx, file, api.UpdateOptions{}, func(status string, _, _ int64) {
		if status == "testing" {
			stop()
		}
	})
	if err == nil || errors.As(err, new(untriedError)) || len(w.record.History) > 0 {
		t.Errorf("%v, %+v", err, w.record)
	}
	if how, err := w.selfTest(t.Context(), w.dir, "0.2.0"); how != trial.Unknown || err == nil { // a directory cannot be started
		t.Errorf("%q, %v", how, err)
	}
	if err := os.WriteFile(w.Program, []byte(program(t, "flood")), 0o755); err != nil {
		t.Fatal(err)
	}
	if how, err := w.selfTest(t.Context(), w.Program, "0.2.0"); how != trial.Unknown || err == nil || len(err.Error()) > testOutput+100 {
		t.Errorf("%q, an error of %d bytes", how, len(fmt.Sprint(err)))
	}
	w.testTime = -1
	if how, err := w.selfTest(t.Context(), w.Program, "0.2.0"); how != trial.Late || !errors.Is(err, errLate) {
		t.Errorf("%q, %v", how, err)
	}
	if how, err := w.selfTest(ctx, w.Program, "0.2.0"); how != trial.Unknown || err == nil {
		t.Errorf("%q, %v", how, err)
	}
}
