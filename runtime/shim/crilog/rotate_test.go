package crilog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// plenty always reports a disk with enough free space.
func plenty(*os.File) (free, total int64) { return 1 << 40, 1 << 40 }

// A shipper follows a log as Fluent Bit and similar programs do. It checks at intervals which file is at the path. It reads an open file to
// its end, even if the file was renamed, before it opens the path again.
type shipper struct {
	path  string
	f     *os.File
	in    *bufio.Reader
	lines int
}

// look checks the path. Then it reads lines until it has read about the given number of bytes.
func (s *shipper) look(t *testing.T, most int) {
	t.Helper()
	for most > 0 {
		if s.f != nil {
			for most > 0 {
				line, err := s.in.ReadSlice('\n')
				if err == io.EOF {
					if len(line) > 0 {
						t.Fatalf("half a line: %q", line)
					}
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				s.lines++
				most -= len(line)
			}
			if most <= 0 {
				return
			}
		}
		now, err := os.Stat(s.path)
		if err != nil {
			return
		}
		if s.f != nil {
			if own, err := s.f.Stat(); err != nil || os.SameFile(own, now) {
				return
			}
			s.f.Close()
		}
		if s.f, err = os.Open(s.path); err != nil {
			t.Fatal(err)
		}
		s.in = bufio.NewReaderSize(s.f, 64<<10)
	}
}

// TestShipper checks that a shipper gets all lines of a burst of 57 MB. The shipper reads 10 MB per second and checks the path every 200
// ms. The cases differ in the duration of the burst and in the age of the log when it begins.
func TestShipper(t *testing.T) {
	const (
		every = 200 * time.Millisecond
		most  = 10_000_000 / 5 // bytes per check
	)
	for _, c := range []struct {
		lines, long int           // 57 MB in total
		before      time.Duration // age of the log when the burst begins
		took        time.Duration // duration of the burst
	}{
		{300_000, 150, time.Minute, time.Second},
		{30_000, 1860, 0, time.Second}, {30_000, 1860, 9 * time.Second, 3 * time.Second},
		{30_000, 1860, time.Minute, every}, {30_000, 1860, time.Minute, 20 * time.Second},
	} {
		t.Run(fmt.Sprint(c.lines, " ", c.before, " ", c.took), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "0.log")
				l, err := Open(path, Options{MaxBytes: 10 << 20, MaxFiles: 5, Interval: 10 * time.Second, DiskSpace: plenty,
					Compress: func(_, root string, names []string) { // compresses the files immediately
						for _, name := range names {
							if err := os.Rename(filepath.Join(root, name), filepath.Join(root, name+".gz")); err != nil {
								t.Error(err)
							}
						}
					}})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				s := &shipper{path: path}
				defer func() { s.f.Close() }()
				out := l.Stream("stdout")
				text := []byte(strings.Repeat("x", c.long) + "\n")
				time.Sleep(c.before)
				s.look(t, most) // opens the file at the path
				for looks, written := 0, 0; looks < 400; looks++ {
					for part := int(float64(c.lines) * float64(every) / float64(c.took)); part > 0 && written < c.lines; part-- {
						if _, err := out.Write(text); err != nil {
							t.Fatal(err)
						}
						written++
					}
					time.Sleep(every)
					s.look(t, most)
				}
				if s.lines != c.lines {
					t.Errorf("the shipper has %d lines of %d", s.lines, c.lines)
				}
			})
		})
	}
}

// sizes returns the size of each file in the directory of a log, and the sum of the sizes.
func sizes(t *testing.T, path string) (all map[string]int64, sum int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = info.Size()
		sum += info.Size()
	}
	return all, sum
}

// TestPace checks three rules of a rotation. Two rotations are at least one interval apart. A full log is rotated even if no further line
// is written. A file is not compressed before the interval has passed.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var compressed []string
		begin := time.Now()
		l, path := open(t, Options{MaxBytes: 1000, MaxFiles: 3, HardMaxBytes: 1 << 20, Interval: 10 * time.Second, Now: time.Now, DiskSpace: plenty,
			Compress: func(_, _ string, names []string) {
				mu.Lock()
				defer mu.Unlock()
				compressed = append(compressed, names...)
			}})
		s := l.Stream("stdout")
		line := []byte(strings.Repeat("x", 99) + "\n")
		write := func(n int) {
			for range n {
				if _, err := s.Write(line); err != nil {
					t.Fatal(err)
				}
			}
		}
		files := func(want int) []string {
			t.Helper()
			synctest.Wait()
			old, err := rotatedPaths(path)
			if err != nil || len(old) != want {
				t.Fatalf("after %v the rotated files are %v, %v; want %d", time.Since(begin), old, err, want)
			}
			return old
		}
		write(100)
		files(0)
		time.Sleep(9 * time.Second)
		files(0)
		time.Sleep(2 * time.Second) // the timer rotates the log
		first := files(1)
		write(100)
		time.Sleep(8 * time.Second)
		files(1)
		names := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(compressed) }
		if got := names(); len(got) > 0 {
			t.Errorf("compressed within the interval: %v", got)
		}
		time.Sleep(2 * time.Second)
		files(2)
		if got, want := names(), filepath.Base(first[0]); len(got) != 1 || filepath.Base(got[0]) != want {
			t.Errorf("compressed files: %v, want %s", got, want)
		}
		write(100)
		time.Sleep(11 * time.Second)
		if left := files(2); slices.Contains(left, first[0]) {
			t.Errorf("the oldest file was not removed: %v", left)
		}
		write(1)
		if all, _ := sizes(t, path); all["0.log"] > 1000 {
			t.Errorf("after the rotation the file has %d bytes", all["0.log"])
		}
		l.Close()
		synctest.Wait() // fails if a timer is still running
	})
}

// TestFlood checks a log that becomes full more than once per interval. Its files stay within the maximum size, and are not compressed.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50_000
		var compressed []string
		l, path := open(t, Options{MaxBytes: 10_000, MaxFiles: 5, Interval: 10 * time.Second, Now: time.Now, DiskSpace: plenty,
			Compress: func(_, _ string, names []string) { compressed = append(compressed, names...) }})
		s := l.Stream("stdout")
		for i := range 5000 {
			if _, err := fmt.Fprintln(s, strings.Repeat("x", 99), i); err != nil {
				t.Fatal(err)
			}
			if all, sum := sizes(t, path); i%100 == 0 && (sum > 2*most+1000 || all["0.log"] > most) {
				t.Fatalf("after %d lines: %v", i, all)
			}
			time.Sleep(time.Millisecond)
		}
		if len(compressed) > 0 {
			t.Errorf("compressed files: %v", compressed)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(" 4999\n")) {
			t.Errorf("the last line is missing: %v", err)
		}
	})
}

// TestShortDisk checks a log on a disk with little free space. It is rotated as soon as it has the configured size, and the oldest files
// are removed immediately.
func TestShortDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, path := open(t, Options{MaxBytes: 10_000, MaxFiles: 3, Interval: 10 * time.Second, Now: time.Now, DiskSpace: func(*os.File) (int64, int64) { return 4 << 10, 1 << 20 }})
		s := l.Stream("stdout")
		for i := range 1000 {
			if _, err := fmt.Fprintln(s, strings.Repeat("x", 99), i); err != nil {
				t.Fatal(err)
			}
			if all, sum := sizes(t, path); sum > 30_000 {
				t.Fatalf("after %d lines: %v", i, all)
			}
		}
	})
}

// TestRetry checks that a rotation that fails is retried once per second, and not for each line.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, path := open(t, Options{MaxBytes: 100, MaxFiles: 3, Now: time.Now, DiskSpace: plenty})
		away := filepath.Dir(path) + ".away"
		if err := errors.Join(os.Rename(filepath.Dir(path), away), os.WriteFile(filepath.Dir(path), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s := l.Stream("stdout")
		failed := 0
		for range 1000 {
			if _, err := fmt.Fprintln(s, strings.Repeat("x", 99)); err != nil {
				failed++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if failed < 5 || failed > 11 {
			t.Errorf("%d failures in 10 s", failed)
		}
		if b, err := os.ReadFile(away + "/0.log"); err != nil || bytes.Count(b, []byte("\n")) != 1000 {
			t.Errorf("%d lines, %v", bytes.Count(b, []byte("\n")), err)
		}
	})
}
