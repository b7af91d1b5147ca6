package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// programs implements Programs. It reads each archive that it is offered.
type programs struct {
	*world
	offer *api.Update
	err   error // of UpdateFrom

	report  *api.UpdateState // nil if the node follows no index
	changed chan struct{}
	busy    error // of CheckOffer, unless a person asks
	asked   string
	opened  func()   // is called after an archive was opened; may be nil
	left    []string // the files of bundles after an archive was opened or could not be opened
}

func (p *programs) UpdateFrom(_ context.Context, list []update.Archive, anew bool, _ update.Progress) (*api.Update, error) {
	for _, a := range list {
		r, err := a.Open()
		p.left = append(p.left, p.folders()...)
		if err != nil {
			return nil, err
		}
		if p.opened != nil {
			p.opened()
		}
		data, err := io.ReadAll(r)
		p.must(errors.Join(err, r.Close()))
		p.asked += fmt.Sprintf("%s: %s %s anew %v\n", a.Name, data, a.Release, anew)
	}
	return p.offer, p.err
}

func (p *programs) Report() (*api.UpdateState, <-chan struct{}) { return p.report, p.changed }

func (p *programs) CheckOffer(asked bool) error {
	if asked {
		return nil
	}
	return p.busy
}

// withProgram returns a change of a source directory that adds an archive of islet and its release.
func withProgram(name string) func(string) {
	return func(dir string) {
		for file, text := range map[string]string{name: "program", name + ".release": "release"} {
			file = filepath.Join(dir, "islet", file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				panic(err)
			}
		}
	}
}

// TestProgramFirst checks that the version of islet in a bundle is tried before the bundle is decoded, because the running version may not
// know all of its fields. Meanwhile nothing of the bundle is written. A person learns what to wait for. Everybody else tries again later.
func TestProgramFirst(t *testing.T) {
	w := newWorld(t)
	p := &programs{world: w, offer: &api.Update{Version: "9.1.0", ID: "4f2a"}}
	file := w.bundle(1, func(dir string) {
		withProgram("islet-arm.tar.gz")(dir)
		withKubelet("")(dir) // which this node cannot try
	})
	n := w.boot(nil)
	n.programs = p
	n.c.RecordSigned = func(context.Context, time.Time) { t.Error("the time of its signature was recorded") }
	b, err := apply(n, file, false)
	if err != nil || b.Update == nil || *b.Update != *p.offer || b.Name != "kiosk" || b.Number != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	if want := "kiosk number 1, file islet-arm.tar.gz: program release anew true\n"; p.asked != want {
		t.Errorf("offered %q, want %q", p.asked, want)
	}
	seen := feed.Seen{}
	_, err = n.apply(t.Context(), request{from: file, followed: true, seen: &seen}, func(string, int64, int64) {})
	if !errors.Is(err, feed.ErrBusy) || !errors.Is(err, medium.ErrBusy) || !strings.HasSuffix(p.asked, "anew false\n") {
		t.Errorf("a followed bundle: %v, offered %q", err, p.asked)
	}
	if r := n.now(); r.Trial != nil || r.Highest != nil || len(w.folders()) > 0 || len(w.pinned) > 0 || len(w.imported) > 0 {
		t.Errorf("%+v, folders %q, pinned %q, imported %v", r, w.folders(), w.pinned, w.imported)
	}
}

// A slowLayout is a bundle on a medium that does not answer any more after it was lost.
type slowLayout struct {
	format.Layout
	lost *bool
}

func (l slowLayout) Open(name string) (io.ReadCloser, int64, error) {
	r, size, err := l.Layout.Open(name)
	return slowFile{r, l.lost}, size, err
}

type slowFile struct {
	io.ReadCloser
	lost *bool
}

func (f slowFile) Read(b []byte) (int, error) {
	if *f.lost {
		return 0, syscall.EIO
	}
	return f.ReadCloser.Read(b)
}

// openFiles returns the files of bundles that this process has open, also those without a name.
func (w *world) openFiles() (names []string) {
	list, err := os.ReadDir("/proc/self/fd")
	w.must(err)
	for _, e := range list {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(name, filepath.Join(w.dir, foldersDir)) {
			names = append(names, name)
		}
	}
	return names
}

// TestProgramOfSlowMedium checks that the archive of islet in a bundle on this machine is complete before the updater reads it, because an
// operator cannot update meanwhile. The copy has no name, so a power cut frees it. It is closed afterwards, also if the medium is lost.
func TestProgramOfSlowMedium(t *testing.T) {
	w := newWorld(t)
	file := w.bundle(1, withProgram("islet-arm.tar.gz"))
	at := 1 << 30
	for _, early := range []bool{false, true} {
		lost := false
		p := &programs{world: w, offer: &api.Update{Version: "9.1.0", ID: "4f2a"}, opened: func() { lost = true }}
		n := w.boot(nil)
		n.programs = p
		f := &bundletest.Faulty{At: at}
		open := func() (format.Layout, error) {
			l, err := format.OpenLayout(file)
			f.Layout = slowLayout{l, &lost}
			return f, err
		}
		_, err := n.apply(t.Context(), request{open: open}, func(string, int64, int64) {})
		updating := updatingError{}
		if early && (!errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "file islet-arm.tar.gz: ")) ||
			!early && (!errors.As(err, &updating) || !strings.Contains(p.asked, "program release")) {
			t.Errorf("lost early %v: %v, offered %q", early, err, p.asked)
		}
		if open := w.openFiles(); len(p.left)+len(open) > 0 || n.now().Trial != nil {
			t.Errorf("lost early %v: names %q, open files %q", early, p.left, open)
		}
		at = f.Opens - 1 // the archive is the last file
	}
}

// TestProgramDone checks that a bundle is used if its version of islet is not newer than the running one. The archive is then neither read
// nor stored.
func TestProgramDone(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	n.programs = &programs{world: w}
	_, err := apply(n, w.bundle(1, withProgram("islet-arm.tar.gz")), false)
	w.must(err)
	if r := n.now(); r.Trial == nil || r.Trial.Number != 1 {
		t.Errorf("%+v", r)
	}
	w.check(n, "after the bundle was applied")
	stored, err := filepath.Glob(filepath.Join(w.dir, foldersDir, "*", filesDir, "islet*"))
	if err != nil || len(stored) > 0 {
		t.Errorf("stored %q, %v", stored, err)
	}
}

// TestRefusedProgram checks the errors of a bundle with a version of islet. Only a later attempt may help against a busy node.
func TestRefusedProgram(t *testing.T) {
	for name, c := range map[string]struct {
		programs *programs
		followed bool
		want     string
		busy     bool
	}{
		"no updates":               {nil, false, "cannot try the version of islet", false},
		"no keys":                  {&programs{err: update.ErrKeys}, false, "edge.update.keys is empty", false},
		"failed before":            {&programs{err: update.ErrFailed}, true, "it has failed, or", false},
		"a trial":                  {&programs{err: trial.ErrBusy}, false, "is on trial", true},
		"a version that waits":     {&programs{err: trial.ErrBusy, busy: errors.New("waits")}, true, "is on trial", true},
		"its version already runs": {&programs{busy: errors.New("waits")}, true, "", false},
		"a link that was cut":      {&programs{err: io.ErrUnexpectedEOF}, true, io.ErrUnexpectedEOF.Error(), false},
		"the same version as this": {&programs{}, false, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.boot(nil)
			if c.programs != nil {
				c.programs.world, n.programs = w, c.programs
			}
			seen := feed.Seen{}
			q := request{from: w.bundle(1, withProgram("islet-arm.tar.gz")), followed: c.followed, seen: &seen}
			_, err := n.apply(t.Context(), q, func(string, int64, int64) {})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if errors.Is(err, feed.ErrBusy) != c.busy || (n.now().Trial == nil) != (c.want != "") {
				t.Errorf("%v, %+v", err, n.now())
			}
		})
	}
}

// TestCheckOffer checks that a bundle is refused before the whole tar is fetched only if it has a version of islet, nobody has requested
// it, and no version can be tried now.
func TestCheckOffer(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	n.programs = &programs{world: w, busy: errors.New("waits")}
	for _, c := range []struct {
		with, followed, busy bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		change := func(string) {}
		if c.with {
			change = withProgram("islet-arm.tar.gz")
		}
		l, err := format.OpenLayout(w.bundle(1, change))
		w.must(err)
		b, err := format.Open(l, &n.c.Policy)
		w.must(err)
		if err := n.checkOffer(b, request{followed: c.followed}); errors.Is(err, feed.ErrBusy) != c.busy {
			t.Errorf("%+v: %v", c, err)
		}
		w.must(l.Close())
	}
}
