package crilog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func fixed() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 5, time.UTC) }

func open(t *testing.T, o Options) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod", "ct", "0.log")
	if o.Now == nil {
		o.Now = fixed
	}
	l, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func TestLines(t *testing.T) {
	const at = "2026-01-01T12:00:00.000000005Z "
	long := strings.Repeat("x", MaxLine)
	for name, c := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":            {nil, ""},
		"line":               {[]string{"a\n"}, at + "stdout F a\n"},
		"empty line":         {[]string{"\n"}, at + "stdout F \n"},
		"in pieces":          {[]string{"a", "b", "\nc"}, at + "stdout F ab\n" + at + "stdout P c\n"},
		"no end":             {[]string{"a"}, at + "stdout P a\n"},
		"just fits":          {[]string{long + "\n"}, at + "stdout F " + long + "\n"},
		"too long":           {[]string{long + "y\n"}, at + "stdout P " + long + "\n" + at + "stdout F y\n"},
		"no terminal":        {[]string{"a\r\n"}, at + "stdout F a\r\n"},
		"terminal":           {[]string{"a\r\n\r\nb\rc\r\r\n"}, at + "stdout F a\n" + at + "stdout F \n" + at + "stdout F b\rc\r\n"},
		"terminal in pieces": {[]string{"a\r", "\n", "b\r"}, at + "stdout F a\n" + at + "stdout P b\r\n"},
		"long in pieces":     {[]string{"a", long + "\n"}, at + "stdout P a" + long[1:] + "\n" + at + "stdout F x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := open(t, Options{})
			s := l.Stream("stdout")
			if strings.HasPrefix(name, "terminal") {
				s = l.Terminal("stdout")
			}
			for _, w := range c.writes {
				if _, err := s.Write([]byte(w)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func rotatedPaths(path string) ([]string, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := listRotated(dir, filepath.Base(path))
	for i := range names {
		names[i] = filepath.Join(filepath.Dir(path), names[i])
	}
	return names, err
}

// TestRotate checks that a rotation keeps the newest files. Their lines are complete and in order.
func TestRotate(t *testing.T) {
	var compressible []string // files passed to Compress
	l, path := open(t, Options{MaxBytes: 130, MaxFiles: 3, Compress: func(_, root string, names []string) {
		for _, name := range names {
			compressible = append(compressible, filepath.Join(root, name))
		}
	}})
	s := l.Stream("stdout")
	for i := range 10 {
		if _, err := s.Write([]byte(strings.Repeat(string(rune('a'+i)), 20) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	old, err := rotatedPaths(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != 2 || compressible[len(compressible)-1] != old[0] {
		t.Fatalf("rotated files: %v, passed to Compress: %v", old, compressible)
	}
	var all []byte
	for _, f := range append(old, path) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 130 {
			t.Errorf("%s has %d bytes", f, len(b))
		}
		all = append(all, b...)
	}
	var letters []byte
	for line := range bytes.Lines(all) {
		letters = append(letters, line[len(line)-2])
	}
	if want := "efghij"; string(letters) != want {
		t.Errorf("lines kept: %s, want %s", letters, want)
	}
}

func TestReopen(t *testing.T) {
	l, path := open(t, Options{})
	s := l.Stream("stderr")
	s.Write([]byte("one\n"))
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	s.Write([]byte("two\n"))
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(got), "stderr F two\n") || bytes.Contains(got, []byte("one")) {
		t.Errorf("after reopening: %q", got)
	}
}

// TestRemovedLog checks a log that is removed or moved. A removed log is created again within a second, because a removed file must not
// grow. A moved log is created again at the next rotation.
func TestRemovedLog(t *testing.T) {
	for name, take := range map[string]func(root, path string) error{
		"the file is removed":                       func(_, path string) error { return os.Remove(path) },
		"the directory of the container is removed": func(_, path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"the directory of logs is removed":          func(root, _ string) error { return os.RemoveAll(root) },
		"the file is moved":                         func(_, path string) error { return os.Rename(path, path+".1") },
		"the directory of the container is moved":   func(_, path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".1") },
	} {
		for _, flood := range []bool{false, true} {
			if strings.HasSuffix(name, "moved") && !flood { // the program that moved the file may still read it
				continue
			}
			root, now := t.TempDir()+"/pods", fixed()
			path := root + "/default_web_u1/c/0.log"
			l, err := Open(path, Options{MaxBytes: 1000, MaxFiles: 2, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			s := l.Stream("stdout")
			lines := 1
			if flood {
				lines = 200 // the lines are written without a pause
			}
			if _, err := s.Write([]byte("before\n")); err != nil {
				t.Fatal(err)
			}
			if err := take(root, path); err != nil {
				t.Fatal(err)
			}
			if !flood {
				now = now.Add(retryDelay)
			}
			for range lines {
				if _, err := s.Write([]byte("after\n")); err != nil {
					t.Errorf("%s, flood %t: %v", name, flood, err)
				}
			}
			b, err := os.ReadFile(path)
			if err != nil || !strings.HasSuffix(string(b), " stdout F after\n") || len(b) > 2000 {
				t.Errorf("%s, flood %t: the log has %q, %v", name, flood, b, err)
			}
			there, _ := os.Stat(path)
			if open, err := l.f.Stat(); err != nil || !os.SameFile(open, there) {
				t.Errorf("%s, flood %t: the log continues in another file: %v", name, flood, err)
			}
			l.Close()
		}
	}
}

// FuzzCRILog checks that the log contains the written bytes. The output and the size of its chunks are arbitrary.
func FuzzCRILog(f *testing.F) {
	f.Add([]byte("hello\nworld"), 3)
	f.Add([]byte("\n\n\n"), 1)
	f.Add(bytes.Repeat([]byte("x"), MaxLine+1), 4096)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		step = max(1, step%(2*MaxLine))
		path := filepath.Join(t.TempDir(), "0.log")
		l, err := Open(path, Options{MaxBytes: 64 << 10, Now: fixed})
		if err != nil {
			t.Fatal(err)
		}
		s := l.Stream("stdout")
		for chunk := range slices.Chunk(in, step) {
			s.Write(chunk)
		}
		s.Close()
		l.Close()
		files, err := rotatedPaths(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, f := range append(files, path) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(b) {
				part := bytes.SplitN(line, []byte(" "), 4)
				if len(part) != 4 || string(part[1]) != "stdout" {
					t.Fatalf("bad line %q", line)
				}
				if len(part[3]) > MaxLine+1 {
					t.Fatalf("line of %d bytes", len(part[3]))
				}
				text := part[3]
				if string(part[2]) == "P" {
					text = text[:len(text)-1]
				}
				got = append(got, text...)
			}
		}
		if !bytes.Equal(got, in) { // got does not contain the newlines that the log has added
			t.Fatalf("got %q, want %q", got, in)
		}
	})
}

// TestHostileLog checks a log whose path is not a regular file. A pod that mounts the log directory of the host may have created it.
func TestHostileLog(t *testing.T) {
	for name, make := range map[string]func(target, log string) error{
		"a link":          func(target, log string) error { return os.Symlink(target+"/file", log) },
		"a dangling link": func(target, log string) error { return os.Symlink(target+"/made", log) },
		"a FIFO":          func(_, log string) error { return syscall.Mkfifo(log, 0o600) },
		"linked directory": func(target, log string) error {
			os.Remove(filepath.Dir(log))
			return os.Symlink(target, filepath.Dir(log))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target, log := dir+"/target", dir+"/pods/default_web_u1/c/0.log"
			for _, d := range []string{target, filepath.Dir(log)} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(target+"/file", []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := make(target, log); err != nil {
				t.Fatal(err)
			}
			if l, err := Open(log, Options{}); err == nil {
				l.Close()
				t.Error("opened")
			}
			entries, err := os.ReadDir(target)
			if b, _ := os.ReadFile(target + "/file"); err != nil || len(entries) != 1 || string(b) != "precious" {
				t.Errorf("the target has %v, %q, %v", entries, b, err)
			}
		})
	}
}

// TestHostileRotation checks a rotation after the directory of the log was replaced by a symlink. A pod that mounts the log directory can
// do this. The rotation must not create, rename or remove files in the target of the symlink. The log continues in the old file.
func TestHostileRotation(t *testing.T) {
	dir := t.TempDir()
	path, own, other := dir+"/pods/default_web_u1/c/0.log", dir+"/pods/default_web_u1/c", dir+"/pods/default_db_u2/c"
	var compressible []string
	l, err := Open(path, Options{MaxBytes: 1, MaxFiles: 3, HardMaxBytes: 1 << 20, Now: fixed, Compress: func(_, _ string, names []string) { compressible = append(compressible, names...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.Stream("stdout")
	for range 3 {
		if _, err := s.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if len(compressible) == 0 || compressible[0] != "default_web_u1/c/0.log.20260101-120000" {
		t.Errorf("files to compress: %v", compressible)
	}
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	theirs := []string{"0.log", "0.log.20250101-120000", "0.log.20250102-120000", "0.log.20250103-120000"}
	for _, name := range theirs {
		if err := os.WriteFile(filepath.Join(other, name), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Rename(own, own+".away"), os.Symlink(other, own)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("after\n")); err == nil {
		t.Error("rotated through a link")
	}
	entries, err := os.ReadDir(other)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, theirs) {
		t.Errorf("the other pod has %v, %v", names, err)
	}
	if b, err := os.ReadFile(own + ".away/0.log"); err != nil || !strings.HasSuffix(string(b), " stdout F after\n") {
		t.Errorf("the log has %q, %v", b, err)
	}
}
