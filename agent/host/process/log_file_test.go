package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLimitLogs checks that a file to which both streams of the agent are appended stays small, also if the agent is started again and
// again and logs nothing. The file has the newest lines, all of them whole, and is the same file.
func TestLimitLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.log")
	open := func(flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	before, err := open(os.O_APPEND).Stat()
	if err != nil {
		t.Fatal(err)
	}
	out, errors := LimitLogs(open(os.O_APPEND), open(os.O_APPEND))
	line, last := strings.Repeat("x", 10_000), 0
	check := func() {
		t.Helper()
		st, err := os.Stat(path)
		if err != nil || !os.SameFile(before, st) {
			t.Fatalf("it is another file: %v", err)
		}
		if st.Size() > maxLogFile {
			t.Fatalf("%d bytes", st.Size())
		}
	}
	for range 2*maxLogFile/len(line) + 10 {
		for _, w := range []io.Writer{out, errors} {
			last++
			if n, err := fmt.Fprintf(w, "%d %s\n", last, line); err != nil || n < len(line) {
				t.Fatal(n, err)
			}
			check()
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || len(text) < keepLogFile-copyBytes {
		t.Fatalf("%d bytes are left: %v", len(text), err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, got := range lines {
		if want := fmt.Sprintf("%d %s", last-len(lines)+1+i, line); got != want {
			t.Fatalf("line %d begins with %.20q, want %.20q", i, got, want)
		}
	}
	for range 3 { // an earlier version, or a program that ends before it logs anything
		if _, err := open(os.O_APPEND).Write(bytes.Repeat([]byte("y\n"), maxLogFile/2)); err != nil {
			t.Fatal(err)
		}
		LimitLogs(nil, open(os.O_APPEND))
		check()
	}
	if _, err := open(os.O_APPEND).Write(make([]byte, maxLogFile)); err != nil { // without any end of a line
		t.Fatal(err)
	}
	LimitLogs(nil, open(os.O_APPEND))
	check()
}

// TestLimitNoOtherStreams checks that streams that are not files to which a service manager appends are used as they are.
func TestLimitNoOtherStreams(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, s := range []io.Writer{f, w, null, &bytes.Buffer{}} {
		if out, errors := LimitLogs(s, s); out != s || errors != s {
			t.Errorf("%T is replaced", s)
		}
	}
}
