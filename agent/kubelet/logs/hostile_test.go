package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHostileFiles checks that no file outside the log is read. A pod that mounts the log directory may replace its logs with links and
// other files.
func TestHostileFiles(t *testing.T) {
	const secret = "2026-11-21T02:03:04Z stdout F secret\n"
	for name, make := range map[string]func(dir, log string) error{
		"a link":            func(dir, log string) error { return os.Symlink(dir+"/secret/0.log", log) },
		"a FIFO":            func(_, log string) error { return unix.Mkfifo(log, 0o600) },
		"a directory":       func(_, log string) error { return os.Mkdir(log, 0o700) },
		"a device":          func(_, log string) error { return os.Symlink("/dev/zero", log) },
		"a rotated link":    func(dir, log string) error { return os.Symlink(dir+"/secret/0.log", log+".20260101-000000") },
		"a compressed link": func(dir, log string) error { return os.Symlink(dir+"/secret/0.log", log+".20260101-000000.gz") },
		"a compressed FIFO": func(_, log string) error { return unix.Mkfifo(log+".20260101-000000.gz", 0o600) },
		"a linked directory": func(dir, log string) error {
			return errorsJoin(os.Remove(filepath.Dir(log)), os.Symlink(dir+"/secret", filepath.Dir(log)))
		},
		"a FIFO as directory": func(_, log string) error {
			return errorsJoin(os.Remove(filepath.Dir(log)), unix.Mkfifo(filepath.Dir(log), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log := dir + "/pods/default_web_u1/c/0.log"
			err := errorsJoin(os.MkdirAll(filepath.Dir(log), 0o755), os.Mkdir(dir+"/secret", 0o755),
				os.WriteFile(dir+"/secret/0.log", []byte(secret), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			if err := make(dir, log); err != nil {
				t.Fatal(err)
			}
			for _, o := range []Options{{Tail: -1}, {Tail: 1}} {
				var out bytes.Buffer
				if err := Read(t.Context(), log, o, nil, &out); err == nil && !strings.Contains(name, "rotated") {
					t.Errorf("the file was read: %q", out.String())
				}
				if out.Len() > 0 {
					t.Errorf("got %q", out.String())
				}
			}
		})
	}
}

func errorsJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestHugeFile checks that the last lines of a log are found in bounded time, even in a huge file, and that all lines are read in bounded
// time, with an error and with the lines of the next file.
func TestHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	put(t, path, line(1, "stdout F one"))
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("this file system has no files of that size:", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n" + line(2, "stdout F two") + "\n" + line(3, "stdout F three") + "\n"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path, Options{Tail: 1}); got != "three\n" {
		t.Errorf("got %q", got)
	}
	if got := read(t, path, Options{Tail: 9}); got != "two\nthree\n" {
		t.Errorf("got %q", got)
	}
	var out bytes.Buffer
	if err := Read(t.Context(), path, Options{Tail: -1}, nil, &out); err == nil || out.String() != "one\n" {
		t.Errorf("all lines: %q, %v", out.String(), err)
	}
	if err := os.Rename(path, path+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	put(t, path, line(4, "stdout F four"))
	out.Reset()
	if err := Read(t.Context(), path, Options{Tail: -1}, nil, &out); err == nil || out.String() != "one\nfour\n" {
		t.Errorf("all lines of two files: %q, %v", out.String(), err)
	}
}

// An endingContext ends when its Err was called n times.
type endingContext struct {
	context.Context
	n int
}

func (c *endingContext) Err() error {
	if c.n--; c.n >= 0 {
		return nil
	}
	return context.Canceled
}

// TestHugeFileCanceled checks that Read ends with its context, also if the present file has no further line: a hole of any size, or a small
// compressed file with many zeros or with many empty members.
func TestHugeFileCanceled(t *testing.T) {
	all, last := Options{Tail: -1}, Options{Tail: 1000}
	for name, c := range map[string]struct {
		options []Options
		make    func(log string) error
	}{
		"a hole":         {[]Options{all}, func(log string) error { return os.Truncate(log, 1<<40) }},
		"a rotated hole": {[]Options{all}, func(log string) error { return sparse(log+".20260101-000000", 1<<40) }},
		"many holes": {[]Options{last}, func(log string) error {
			for i := range 1000 {
				if err := sparse(fmt.Sprintf("%s.20260101-%06d", log, i), 1<<40); err != nil {
					return err
				}
			}
			return nil
		}},
		"zeros": {[]Options{all, last}, func(log string) error {
			return bomb(log, func(z *gzip.Writer) error { _, err := z.Write(make([]byte, 16<<20)); return err })
		}},
		"empty members": {[]Options{all, last}, func(log string) error {
			return bomb(log, func(z *gzip.Writer) error { return z.Flush() })
		}},
	} {
		path := filepath.Join(t.TempDir(), "0.log")
		put(t, path, line(1, "stdout F one"))
		if err := c.make(path); errors.Is(err, unix.EFBIG) {
			t.Log("this file system has no files of that size:", err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, o := range c.options {
			for n := range 6 {
				if err := Read(&endingContext{t.Context(), n}, path, o, nil, io.Discard); !errors.Is(err, context.Canceled) {
					t.Errorf("%s, tail %d, canceled after %d calls: %v", name, o.Tail, n, err)
				}
			}
		}
	}
}

func sparse(path string, size int64) error {
	return errorsJoin(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
}

// bomb writes a compressed rotated file of a MiB. The function write is called for each member of the file.
func bomb(log string, write func(*gzip.Writer) error) error {
	var member, all bytes.Buffer
	z := gzip.NewWriter(&member)
	if err := errorsJoin(write(z), z.Close()); err != nil {
		return err
	}
	for all.Len() < 1<<20 {
		all.Write(member.Bytes())
	}
	return os.WriteFile(log+".20260101-000000.gz", all.Bytes(), 0o600)
}

// TestWithin checks that the option Within limits how many bytes are searched for the last line. If the line is longer, its beginning is
// not read. Older files are not read either.
func TestWithin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	put(t, path+".20260101-000000", line(1, "stdout F old"))
	pieces := []string{line(2, "stdout P begin")}
	for range 100 {
		pieces = append(pieces, line(2, "stdout P "+strings.Repeat("x", 16<<10)))
	}
	put(t, path, pieces...)
	const within = 64 << 10
	if got := read(t, path, Options{Tail: 1, Within: within}); len(got) > within || !strings.HasPrefix(got, "xxx") {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
	if got := read(t, path, Options{Tail: 1}); !strings.HasPrefix(got, "begin") {
		t.Errorf("without the bound: %.20q", got)
	}
	put(t, path, line(3, "stdout F one"), line(3, "stdout F two"))
	if got := read(t, path, Options{Tail: 1, Within: within}); got != "two\n" {
		t.Errorf("got %q", got)
	}
	if got := read(t, path, Options{Tail: 9}); got != "old\none\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if got := read(t, path, Options{Tail: 9, Within: within}); got != "one\ntwo\n" {
		t.Errorf("an older file is read: %q", got)
	}
}

// TestNoNewlineThatIsNotThere checks that the last line is returned without a newline if the container did not write one.
func TestNoNewlineThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	put(t, path, line(1, "stdout F one"), line(2, "stdout F two"), line(3, "stderr P th"), line(4, "stderr P ree"))
	for tail, want := range map[int64]string{-1: "one\ntwo\nthree", 2: "two\nthree", 1: "three", 0: ""} {
		if got := read(t, path, Options{Tail: tail}); got != want {
			t.Errorf("tail %d: %q, not %q", tail, got, want)
		}
	}
}

// FuzzCRILogSet reads arbitrary bytes as a log and as a compressed rotated log.
func FuzzCRILogSet(f *testing.F) {
	f.Add([]byte("2016-10-06T00:17:09Z stdout P a\n"), []byte("2016-10-06T00:17:09Z stdout F b\n"), false)
	f.Add([]byte("\n\n"), []byte{0x1f, 0x8b}, true)
	f.Fuzz(func(t *testing.T, now, old []byte, raw bool) {
		path := filepath.Join(t.TempDir(), "0.log")
		if !raw {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(old)
			z.Close()
			old = b.Bytes()
		}
		if err := errorsJoin(os.WriteFile(path, now, 0o600), os.WriteFile(path+".20260101-000000.gz", old, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{Tail: -1}, {Tail: 3, Timestamps: true}, {Tail: -1, LimitBytes: 7, Stream: Stderr}} {
			var out bytes.Buffer
			Read(t.Context(), path, o, nil, &out) // an invalid gzip file may cause an error
			if o.LimitBytes > 0 && int64(out.Len()) > o.LimitBytes {
				t.Fatalf("%d bytes, not %d", out.Len(), o.LimitBytes)
			}
		}
	})
}
