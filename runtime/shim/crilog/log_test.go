package crilog

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		"nothing":        {nil, ""},
		"line":           {[]string{"a\n"}, at + "stdout F a\n"},
		"empty line":     {[]string{"\n"}, at + "stdout F \n"},
		"in pieces":      {[]string{"a", "b", "\nc"}, at + "stdout F ab\n" + at + "stdout F c\n"},
		"no end":         {[]string{"a"}, at + "stdout F a\n"},
		"just fits":      {[]string{long + "\n"}, at + "stdout F " + long + "\n"},
		"too long":       {[]string{long + "y\n"}, at + "stdout P " + long + "\n" + at + "stdout F y\n"},
		"long in pieces": {[]string{"a", long + "\n"}, at + "stdout P a" + long[1:] + "\n" + at + "stdout F x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := open(t, Options{})
			s := l.Stream("stdout")
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

// Rotation keeps the newest files, in order, and no line is lost or torn.
func TestRotate(t *testing.T) {
	var told []string // files that may be compressed
	l, path := open(t, Options{MaxBytes: 130, MaxFiles: 3, Compress: func(p string) { told = append(told, p) }})
	s := l.Stream("stdout")
	for i := range 10 {
		if _, err := s.Write([]byte(strings.Repeat(string(rune('a'+i)), 20) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	old, err := Rotated(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != 2 || told[len(told)-1] != old[0] {
		t.Fatalf("rotated files: %v, told %v", old, told)
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

// FuzzCRILog: whatever is written in whatever pieces, the log gives it back.
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
		files, err := Rotated(path)
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
		want := in
		if len(want) > 0 && want[len(want)-1] != '\n' {
			want = append(slices.Clone(want), '\n')
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
