package podvolumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

func textFiles(pairs ...string) files {
	f := files{}
	for i := 0; i < len(pairs); i += 2 {
		f[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o644}
	}
	return f
}

// TestInterruptedWrite checks that a volume is complete after an interrupted write. The next write removes the remains of the interrupted
// one.
func TestInterruptedWrite(t *testing.T) {
	for name, interrupt := range map[string]func(dir string) error{
		"data directory begun": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/..2026_01_01_00_00_00.000000001", 0o755), os.WriteFile(dir+"/..2026_01_01_00_00_00.000000001/a", []byte("half"), 0o600))
		},
		"links of new files made": func(dir string) error { return os.Symlink("..data/new", dir+"/new") },
		"next link made": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/..2026_01_01_00_00_00.000000001", 0o755), os.Symlink("..2026_01_01_00_00_00.000000001", dir+"/..data_tmp"))
		},
		"links lost":                     func(dir string) error { return os.Remove(dir + "/a") },
		"data lost":                      func(dir string) error { return os.RemoveAll(filepath.Join(dir, "..data/a")) },
		"data changed":                   func(dir string) error { return os.WriteFile(filepath.Join(dir, "..data/a"), []byte("2"), 0o644) },
		"mode changed":                   func(dir string) error { return os.Chmod(filepath.Join(dir, "..data/a"), 0o600) },
		"a directory in place of a file": func(dir string) error { return errors.Join(os.Remove(dir+"/a"), os.MkdirAll(dir+"/a/b", 0o755)) },
		"..data is a broken link": func(dir string) error {
			to, err := os.Readlink(dir + "/..data")
			return errors.Join(err, os.RemoveAll(filepath.Join(dir, to)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			want := textFiles("a", "1", "d/b", "2")
			if err := want.write(dir, -1); err != nil {
				t.Fatal(err)
			}
			if err := interrupt(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := want.write(dir, -1); err != nil {
					t.Fatal(err)
				}
				shows(t, dir, map[string]string{"a": "-rw-r--r-- 1", "d/b": "-rw-r--r-- 2"})
				if h := hiddenIn(t, dir); len(h) != 2 {
					t.Error(h)
				}
			}
		})
	}
}

// TestHostileNames checks that no file is written outside the volume. A name must not hide a file of the volume.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "../x", "/etc/x", "a/../../x", "a/../b", "..data", "..data/x", "..x", "a\x00b",
		"./", "./.", ".//..", "./..data", ".//..x/y", "a/./../b", "a/..", "/"} {
		if err := textFiles(name, "1").write(dir, -1); err == nil {
			t.Errorf("wrote %q", name)
		}
	}
	if err := textFiles("a", "1", "a/b", "2").write(dir, -1); err == nil {
		t.Error("a file that is a directory")
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, dir+"/..data"); err != nil {
		t.Fatal(err)
	}
	if err := textFiles("x", "1").write(dir, -1); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Error(entries, err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("a", "b/c", "../d", []byte("x"))
	f.Add("..data", "a/b", "a/c", []byte(""))
	f.Add("./a", "a//", "b/./c/", []byte("x"))
	f.Fuzz(func(t *testing.T, a, b, c string, data []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "volume")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for round := range 2 { // the second write replaces the first one
			want := files{a: {data: data, mode: 0o600}, b: {data: []byte("b"), mode: 0o644}}
			if round == 1 {
				want = files{c: {data: data, mode: 0o644}}
			}
			if want.write(dir, -1) != nil {
				continue
			}
			if round == 0 && a != b && path.Clean(a) == path.Clean(b) {
				delete(want, min(a, b)) // the other path applies
			}
			for name, w := range want {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(w.data) {
					t.Errorf("%q: %q, %v", name, got, err)
				}
			}
		}
		entries, err := os.ReadDir(base)
		if err != nil || len(entries) != 1 {
			t.Errorf("%q, %q, %q: written outside: %v, %v", a, b, c, entries, err)
		}
	})
}

// TestReadersSeeOneWrite checks that a reader always sees the files of the same write.
func TestReadersSeeOneWrite(t *testing.T) {
	dir := t.TempDir()
	if err := textFiles("a", "0", "b", "0").write(dir, -1); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			if err := textFiles("a", fmt.Sprint(i), "b", fmt.Sprint(i)).write(dir, -1); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		data, err := os.OpenRoot(filepath.Join(dir, dataLink)) // this keeps one data directory open
		if errors.Is(err, fs.ErrNotExist) {
			continue // the link was replaced before the open
		} else if err != nil {
			t.Error(err)
			continue
		}
		a, errA := data.ReadFile("a")
		b, errB := data.ReadFile("b")
		data.Close()
		if errors.Is(errA, fs.ErrNotExist) || errors.Is(errB, fs.ErrNotExist) {
			continue // the directory was replaced and removed meanwhile
		}
		if string(a) != string(b) || strings.TrimSpace(string(a)) == "" {
			t.Errorf("%q and %q, %v, %v", a, b, errA, errB)
		}
	}
}
