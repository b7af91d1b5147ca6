package keyfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPowerCut ends Seal and Unseal after each of their steps. The next start must have the same key, and the command must work when it is
// repeated. If the key is sealed afterwards, no plain copy is left.
func TestPowerCut(t *testing.T) {
	socket := startTPM(t)
	cut := errors.New("power cut")
	for _, c := range []struct {
		command string
		steps   []string
		run     func(Place, Request) error
		sealed  bool // whether the key is sealed afterwards
	}{
		{"seal", []string{"written", "proved", "shown", "linked", "renamed", "synced"}, Place.Seal, true},
		{"unseal", []string{"written", "renamed"}, Place.Unseal, false},
	} {
		for _, step := range c.steps {
			p := Place{Dir: t.TempDir(), TPM: socket}
			must(t, p.Make())
			k, err := p.Read()
			must(t, err)
			var recovery string
			if c.command == "unseal" {
				must(t, p.Seal(noted(&recovery)))
			}
			r, reached := noted(&recovery), false
			r.crash = func(s string) error {
				if s != step {
					return nil
				}
				reached = true
				return cut
			}
			before := p.IsSealed()
			err = c.run(p, r)
			if !reached || !errors.Is(err, cut) {
				t.Errorf("%s has not come to %q: %v", c.command, step, err)
			}
			sealed := before != (step == "renamed" || step == "synced")
			opens(t, c.command+" until "+step, p, k.Bytes, sealed, recovery)
			r.crash = nil
			if c.command == "seal" || sealed {
				must(t, c.run(p, r))
			}
			opens(t, c.command+" again after "+step, p, k.Bytes, c.sealed, recovery)
			if got := names(t, p); !slices.Equal(got, []string{Name}) {
				t.Errorf("%s after %s leaves %q", c.command, step, got)
			}
		}
	}
}

// created returns the names of all files that run creates in the directory of a key, also those that it removes or renames again.
func created(t *testing.T, p Place, run func() error) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	watch := os.NewFile(uintptr(fd), "inotify")
	defer watch.Close()
	_, err = unix.InotifyAddWatch(fd, p.Dir, unix.IN_CREATE|unix.IN_MOVED_TO)
	must(t, err)
	must(t, run())
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	must(t, err)
	for b := buf[:n]; len(b) > 0; {
		end := unix.SizeofInotifyEvent + binary.NativeEndian.Uint32(b[unix.SizeofInotifyEvent-4:])
		names = append(names, string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00")))
		b = b[end:]
	}
	return names
}

// TestNames checks the names of all files that are created, also for a moment. A power cut may leave each of them. A file that is not for a
// sealed key is listed as a plain copy, and the next start removes it, whole or half written.
func TestNames(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	var recovery string
	seen := created(t, p, p.Make)
	k, err := p.Read()
	must(t, err)
	for what, run := range map[string]func() error{
		"restore": func() error { return errors.Join(os.Remove(p.Path()), k.Restore()) },
		"seal":    func() error { return p.Seal(noted(&recovery)) },
		"unseal":  func() error { return errors.Join(p.Seal(noted(&recovery)), p.Unseal(Request{})) },
	} {
		more := created(t, p, run)
		if len(more) == 0 {
			t.Error(what, "creates no file")
		}
		seen = append(seen, more...)
		if p.IsSealed() {
			must(t, p.Unseal(Request{}))
		}
	}
	must(t, p.Seal(noted(&recovery)))
	for _, name := range slices.Compact(slices.Sorted(slices.Values(seen))) {
		if name == Name || name == Name+sealedSuffix || name == "."+Name+sealedSuffix+".new" {
			continue
		}
		for _, size := range []int{Size, Size / 2, 0} {
			file := filepath.Join(p.Dir, name)
			must(t, os.WriteFile(file, k.Bytes[:size], 0o600))
			if s := p.Status(); !slices.Equal(s.Copies, []string{file}) {
				t.Errorf("after a power cut in the write of %s, the copies are %q", name, s.Copies)
			}
			opens(t, "with "+name, p, k.Bytes, true, recovery) // Read removes it
		}
		if got := names(t, p); !slices.Equal(got, []string{Name}) {
			t.Errorf("a start with %s leaves %q", name, got)
		}
	}
}

// TestCopies checks that the plain copies that an interrupted start of the agent has left are overwritten. A second name of the key file
// itself must not be overwritten.
func TestCopies(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	must(t, os.Link(p.Path(), p.Path()+".1234567"))
	must(t, os.Link(p.Path(), p.Path()+plainSuffix))
	must(t, os.WriteFile(filepath.Join(p.Dir, "."+Name+".new"), k.Bytes, 0o600))
	kept := filepath.Join(p.Dir, Name+".backup") // the person's own
	must(t, os.WriteFile(kept, k.Bytes, 0o600))
	elsewhere := filepath.Join(t.TempDir(), "another name")
	must(t, os.Link(filepath.Join(p.Dir, "."+Name+".new"), elsewhere))
	var recovery string
	must(t, p.Seal(noted(&recovery)))
	opens(t, "sealed", p, k.Bytes, true, recovery)
	if got := names(t, p); !slices.Equal(got, []string{Name, Name + ".backup"}) {
		t.Error(got)
	}
	if data, err := os.ReadFile(elsewhere); err != nil || bytes.Contains(data, k.Bytes[:8]) {
		t.Error("the copy was not overwritten:", err)
	}
	must(t, os.WriteFile(p.Path()+plainSuffix, k.Bytes, 0o600)) // as after a power cut
	if s := p.Status(); !slices.Equal(s.Copies, []string{p.Path() + plainSuffix}) {
		t.Error(s)
	}
	opens(t, "with a copy", p, k.Bytes, true, recovery) // Read removes it
}

// TestCopiesAreOverwrittenLast checks that a plain copy is not touched before the names in the directory are durable: until then, a power
// cut may give its content the name of the key file again.
func TestCopiesAreOverwrittenLast(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	var recovery string
	r := noted(&recovery)
	r.crash = func(step string) error {
		if step == "renamed" {
			return errors.New("power cut")
		}
		return nil
	}
	if err := p.Seal(r); err == nil {
		t.Fatal("there was no power cut")
	}
	broken := errors.New("the disk fails")
	p.syncDir = func(string) error { return broken }
	if err := p.removePlain(); !errors.Is(err, broken) {
		t.Error(err)
	}
	if data, err := os.ReadFile(p.Path() + plainSuffix); err != nil || !bytes.Equal(data, k.Bytes) {
		t.Errorf("the copy was overwritten before the sealed file was durable: %x, %v", data, err)
	}
}

// TestZeros checks that a key file of zeros, which a power cut may leave on some disks, is never used and never replaced.
func TestZeros(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: "/dev/null"}
	must(t, os.WriteFile(p.Path(), make([]byte, Size), 0o600))
	_, err := p.Read()
	for what, err := range map[string]error{"read": err, "status": p.Status().Problem, "seal": p.Seal(Request{})} {
		if err == nil || !strings.Contains(err.Error(), p.Path()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, p.Make())
	if data, err := os.ReadFile(p.Path()); err != nil || !bytes.Equal(data, make([]byte, Size)) {
		t.Errorf("the file was replaced: %x, %v", data, err)
	}
}
