package update

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
)

// offered returns the Archive for an archive and its release file.
func offered(t testing.TB, name, file string) Archive {
	t.Helper()
	text, err := os.ReadFile(file + Suffix)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return Archive{Name: name, Release: text, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(file) }}
}

// TestUpdateFrom checks which of several archives is offered. Archives for other machines and versions that are not newer are never opened.
func TestUpdateFrom(t *testing.T) {
	s, key := stager(t)
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	dir := t.TempDir()
	of := func(version, arch string, by ed25519.PrivateKey) Archive {
		return offered(t, "file "+version, archive(t, dir, version+arch, version, arch, program(t, "good"), by))
	}
	const other = "riscv64"
	good, same := of("0.2.0", runtime.GOARCH, key), of("0.1.0", runtime.GOARCH, key)
	older, foreign := of("0.0.9", runtime.GOARCH, key), of("0.9.0", other, key)
	for _, a := range []*Archive{&same, &older, &foreign} {
		a.Open = func() (io.ReadCloser, error) {
			t.Errorf("%s is opened", a.Name)
			return nil, io.EOF
		}
	}
	busy, held := error(nil), true
	offered := ""
	u := New(Config{Stager: *s, StagedPath: func() string { return "" },
		Offer: func(p *StagedProgram, from string, anew bool) (string, bool, error) {
			offered += p.Version + " of " + from
			return "id", held, nil
		},
		IsRefused:  func(version, _ string) bool { return version == "0.2.0" },
		CheckOffer: func(bool) error { return busy },
	})
	for name, c := range map[string]struct {
		list    []Archive
		again   bool // not anew
		busy    error
		waits   bool
		offered string
		bad     string
		isBusy  bool
	}{
		"the newest for this machine": {list: []Archive{older, foreign, good, same}, offered: "0.2.0 of file 0.2.0"},
		"nothing newer":               {list: []Archive{older, foreign, same}},
		"nothing":                     {},
		"of a stranger":               {list: []Archive{of("0.3.0", runtime.GOARCH, stranger)}, bad: "file 0.3.0: "},
		"no release":                  {list: []Archive{{Name: "file x", Release: []byte("x")}, good}, bad: "file x: "},
		"failed before":               {list: []Archive{good}, again: true, bad: ErrFailed.Error()},
		"a trial":                     {list: []Archive{good}, busy: errors.New("on trial"), bad: "on trial", isBusy: true},
		"another that waits":          {list: []Archive{good}, waits: true, offered: "0.2.0 of file 0.2.0", bad: "waits for its trial", isBusy: true},
	} {
		t.Run(name, func(t *testing.T) {
			offered, busy, held = "", c.busy, !c.waits
			u.c.RemoveOld() // of an earlier case that was offered
			out, err := u.UpdateFrom(t.Context(), c.list, !c.again, nil)
			if offered != c.offered || (err == nil) != (c.bad == "") || errors.Is(err, trial.ErrBusy) != c.isBusy {
				t.Errorf("offered %q, %v", offered, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%v, want %q", err, c.bad)
			}
			if (out != nil) != (c.offered != "" && err == nil) || out != nil && (out.Version != "0.2.0" || out.ID != "id") {
				t.Errorf("%+v", out)
			}
			if c.offered == "" && left(t, s) != "islet" {
				t.Errorf("left %q", left(t, s))
			}
		})
	}
}

// A closedFile records that it was closed.
type closedFile struct {
	io.ReadCloser
	closed *bool
}

func (f closedFile) Close() error {
	*f.closed = true
	return f.ReadCloser.Close()
}

// TestArchiveIsClosed checks that an archive is closed before the program is unpacked. The archive may be a copy without a name, and there
// may be no space for the copy, the archive and the program together.
func TestArchiveIsClosed(t *testing.T) {
	s, key := stager(t)
	a := offered(t, "file good", archive(t, t.TempDir(), "good", "0.2.0", runtime.GOARCH, program(t, "good"), key))
	u := New(Config{Stager: *s, StagedPath: func() string { return "" },
		Offer: func(*StagedProgram, string, bool) (string, bool, error) { return "id", true, nil }})
	closed, unpacked, open := false, false, a.Open
	a.Open = func() (io.ReadCloser, error) {
		f, err := open()
		return closedFile{f, &closed}, err
	}
	_, err := u.UpdateFrom(t.Context(), []Archive{a}, true, func(status string, _, _ int64) {
		if status == "unpacking" {
			unpacked = true
			if !closed {
				t.Error("the archive is still open")
			}
		}
	})
	if err != nil || !unpacked {
		t.Errorf("unpacked %v, %v", unpacked, err)
	}
}

// TestUnfitArchive checks that an archive whose program fails its self-test is not read again, unless an operator requests it. An archive
// with another size than its release is never read.
func TestUnfitArchive(t *testing.T) {
	s, key := stager(t)
	a := offered(t, "file crash", archive(t, t.TempDir(), "crash", "0.2.0", runtime.GOARCH, program(t, "unfit"), key))
	var record trial.Record
	u := New(Config{Stager: *s, StagedPath: func() string { return "" },
		IsRefused: func(version, sum string) bool { return record.HasFailed(trial.Program{Version: version, Sum: sum}) },
		AddUntried: func(p trial.Program, from string, how trial.Untried, why string, anew bool) {
			record.AddUntried(p, trial.Source{File: from}, how, why, anew, time.Now())
		}})
	opened := 0
	list := func(size int64) []Archive {
		return []Archive{{Name: a.Name, Release: a.Release, Size: size, Open: func() (io.ReadCloser, error) {
			opened++
			if err := u.CheckOffer(true); err != nil { // while a server sends the archive, an operator can update
				t.Error(err)
			}
			return a.Open()
		}}}
	}
	for i, c := range []struct {
		size   int64
		anew   bool
		opened int
		want   string
	}{
		{a.Size + 1, true, 0, "the release says"},
		{a.Size, false, 1, "self-test"},
		{a.Size, false, 1, ErrFailed.Error()},
		{a.Size, true, 2, "self-test"},
	} {
		if _, err := u.UpdateFrom(t.Context(), list(c.size), c.anew, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("attempt %d: %v, want %q", i, err, c.want)
		}
		if opened != c.opened || left(t, s) != "islet" {
			t.Errorf("attempt %d: opened %d times, left %q", i, opened, left(t, s))
		}
	}
	u.once.Lock()
	defer u.once.Unlock()
	if err := u.CheckOffer(true); !errors.Is(err, trial.ErrBusy) {
		t.Errorf("during an update: %v", err)
	}
}
