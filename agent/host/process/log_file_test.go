package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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

// TestLogOfTwoProcesses checks a file to which two processes append, and which each of them may shorten. While one of them shortens the
// file, the other one does not. The file never becomes empty.
func TestLogOfTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.log")
	open := func(flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	size := func() int64 {
		t.Helper()
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	out, _ := LimitLogs(open(os.O_APPEND|os.O_WRONLY), nil)
	other, _ := LimitLogs(open(os.O_APPEND|os.O_WRONLY), nil)
	lock := open(os.O_RDWR)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 100_000), '\n')
	for range maxLogFile/len(line) + 2 {
		if _, err := out.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if size() <= maxLogFile {
		t.Errorf("%d bytes are left while another process shortens the file", size())
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for _, w := range []io.Writer{out, other} {
		writers.Go(func() {
			for range 4 * maxLogFile / len(line) {
				if _, err := w.Write(line); err != nil {
					t.Error(err)
				}
				if st, err := os.Stat(path); err != nil || st.Size() < keepLogFile-copyBytes-int64(len(line)) {
					t.Errorf("the file was emptied: %v", err)
				}
			}
		})
	}
	writers.Wait()
	if _, err := out.Write(line); err != nil || size() > maxLogFile {
		t.Errorf("%d bytes: %v", size(), err)
	}
}

// TestLogShortenedByOthers checks that a file that a program without the lock has shortened stays as it is, and that the lines up to the
// current end are kept.
func TestLogShortenedByOthers(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("first\nsecond\nthird\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := moveToBegin(f, 100); err != io.EOF {
		t.Error(err)
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "first\nsecond\nthird\n" {
		t.Errorf("%q, %v", text, err)
	}
	if n, err := moveToBegin(f, 2); err != nil || n != int64(len("second\nthird\n")) {
		t.Error(n, err)
	}
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
