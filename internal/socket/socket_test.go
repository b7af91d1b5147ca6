package socket

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A logRecorder is a slog.Handler that keeps all records.
type logRecorder struct {
	mu      sync.Mutex
	records []slog.Record
	got     chan struct{} // receives a value for each record
}

func newRecorder() *logRecorder { return &logRecorder{got: make(chan struct{}, 100)} }

func (l *logRecorder) Enabled(context.Context, slog.Level) bool { return true }
func (l *logRecorder) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logRecorder) WithGroup(string) slog.Handler            { return l }

func (l *logRecorder) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	select {
	case l.got <- struct{}{}:
	default:
	}
	return nil
}

// count returns the number of records for which is returns true.
func (l *logRecorder) count(is func(slog.Record) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if is(r) {
			n++
		}
	}
	return n
}

// String returns all records, for the message of a failed test.
func (l *logRecorder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text strings.Builder
	for _, r := range l.records {
		_ = slog.NewTextHandler(&text, nil).Handle(context.Background(), r)
	}
	return text.String()
}

// await waits until is has returned true for the given number of records.
func (l *logRecorder) await(t *testing.T, is func(slog.Record) bool, times int) {
	t.Helper()
	late := time.After(time.Minute)
	for l.count(is) < times {
		select {
		case <-l.got:
		case <-late:
			t.Fatalf("the log has %d records of %d:\n%s", l.count(is), times, l)
		}
	}
}

// createdAgain reports whether a record is about a socket that was created again. No other record of these tests is a warning.
func createdAgain(r slog.Record) bool { return r.Level == slog.LevelWarn }

// isTaken reports whether a record is about a socket that another process serves.
func isTaken(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = found || ok && errors.Is(err, errTaken)
		return !found
	})
	return found
}

// A site consists of two served sockets in different directories.
type site struct {
	*Sockets
	log       *logRecorder
	dir       string
	paths     []string
	lost      chan struct{}
	listeners []*Listener
}

func serve(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // short, because the path of a socket has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{dir: dir, log: newRecorder(), lost: make(chan struct{}, 100)}
	s.Sockets = New(Config{OnLost: func() error { s.lost <- struct{}{}; return nil }, Dirs: []string{filepath.Join(dir, "run")}, Log: slog.New(s.log)})
	var wg sync.WaitGroup
	for _, name := range []string{"run/islet/a.sock", "root/b.sock"} {
		path := filepath.Join(dir, name)
		l, err := s.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		s.paths, s.listeners = append(s.paths, path), append(s.listeners, l)
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte(name))
				c.Close()
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		for _, l := range s.listeners {
			l.Close()
			if _, err := os.Lstat(l.path); err == nil {
				t.Errorf("%s is left", l.path)
			}
		}
		wg.Wait()
	})
	return s
}

// checkSockets fails the test if a socket does not respond, or is accessible to other users.
func (s *site) checkSockets(t *testing.T) {
	t.Helper()
	for _, path := range s.paths {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("%v\n%s", err, s.log)
		}
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(path, string(b)) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		c.Close()
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
}

// TestComesBack removes sockets in every possible way, twice. It checks that they are created again each time.
func TestComesBack(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, s *site) (removed int, err error){
		"a socket":      func(t *testing.T, s *site) (int, error) { return 1, os.Remove(s.paths[0]) },
		"both sockets":  func(t *testing.T, s *site) (int, error) { os.Remove(s.paths[1]); return 2, os.Remove(s.paths[0]) },
		"the directory": func(t *testing.T, s *site) (int, error) { return 1, os.RemoveAll(filepath.Dir(s.paths[0])) },
		"all":           func(t *testing.T, s *site) (int, error) { return 2, os.RemoveAll(s.dir) },
		"moved":         func(t *testing.T, s *site) (int, error) { return 1, os.Rename(s.paths[0], s.paths[0]+".old") },
		"directory moved": func(t *testing.T, s *site) (int, error) {
			d := filepath.Dir(s.paths[0])
			return 1, os.Rename(d, d+time.Now().Format(".000000000"))
		},
		"directory above moved": func(t *testing.T, s *site) (int, error) {
			d := filepath.Join(s.dir, "run")
			return 1, os.Rename(d, d+time.Now().Format(".000000000"))
		},
		"a dead one there": func(t *testing.T, s *site) (int, error) { return 1, createDead(s.paths[0]) },
		"a file system over it": func(t *testing.T, s *site) (int, error) {
			d := filepath.Join(s.dir, "run")
			return 1, syscall.Mount("tmpfs", d, "tmpfs", 0, "size=64k")
		},
		"a file system taken away": func(t *testing.T, s *site) (int, error) {
			d := filepath.Join(s.dir, "run")
			if err := syscall.Mount("tmpfs", d, "tmpfs", 0, "size=64k"); err != nil {
				return 0, err
			}
			s.log.await(t, createdAgain, s.log.count(createdAgain)+1)
			return 1, syscall.Unmount(d, syscall.MNT_DETACH)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "file system") && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			t.Parallel()
			s := serve(t)
			under := filepath.Join(s.dir, "run")
			t.Cleanup(func() { // runs before the listeners are closed, because Close checks the files
				for syscall.Unmount(under, syscall.MNT_DETACH) == nil {
					os.RemoveAll(under) // the hidden sockets, which no process serves
				}
			})
			s.checkSockets(t)
			for range 2 {
				before := s.log.count(createdAgain)
				removed, err := remove(t, s)
				if err != nil {
					t.Fatal(err)
				}
				if name == "a file system taken away" {
					before++
				}
				s.log.await(t, createdAgain, before+removed)
				s.checkSockets(t)
			}
			if len(s.lost) < 2 {
				t.Errorf("Lost was called %d times", len(s.lost))
			}
		})
	}
}

// createDead creates a socket that no process serves.
func createDead(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

// TestTaken checks that a Listener does not replace a socket that another process has created at the Listener's path. When this socket is
// removed, the Listener's socket must be created again.
func TestTaken(t *testing.T) {
	s := serve(t)
	path := s.paths[0]
	if _, err := New(Config{Log: s.Log}).Listen(path); !errors.Is(err, errTaken) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second agent: %v", err)
	}
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".other"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".other", path); err != nil {
		t.Fatal(err)
	}
	s.log.await(t, isTaken, 1)
	other.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.log.await(t, createdAgain, 1)
	s.checkSockets(t)
}

// TestClose checks that Close removes the listener's socket and no other file.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, foreign := range []bool{false, true} {
		l, err := New(Config{Log: slog.New(slog.DiscardHandler)}).Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if foreign {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); (err == nil) != foreign {
			t.Errorf("of another: %v; then the file is %v", foreign, err)
		}
	}
}

// TestFullDisk checks that Listen returns no error on a full disk. The socket must be created when the disk has free space.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=1"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	log := newRecorder()
	s := New(Config{Log: slog.New(log)})
	path := filepath.Join(dir, "run", "s")
	l, err := s.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	defer wg.Wait()
	defer stop()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Write([]byte("s"))
			c.Close()
		}
	}()
	log.await(t, createdAgain, 1)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "s" {
		t.Errorf("the socket says %q, %v", b, err)
	}
}

// TestLater checks a Listener whose socket cannot be created at first, because the directory cannot be read. The socket must be created
// when the fault ends. Until then Accept waits, unless Close is called.
func TestLater(t *testing.T) {
	dir := t.TempDir()
	l := &Listener{path: filepath.Join(dir, "s"), sockets: New(Config{Log: slog.New(slog.DiscardHandler)}), ready: make(chan struct{})}
	ended := make(chan error, 2)
	accept := func() {
		c, err := l.Accept()
		if err == nil {
			c.Close()
		}
		ended <- err
	}
	go accept()
	if made, err := l.restore(func() error { return nil }); !made || err != nil {
		t.Fatal(made, err)
	}
	c, err := net.Dial("unix", l.path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	l.Close()

	l = &Listener{path: filepath.Join(dir, "s"), sockets: l.sockets, ready: make(chan struct{})}
	go accept()
	l.Close()
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestNoInotify checks that Run tries again, and logs one error, while inotify cannot be used.
func TestNoInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logRecorder{}
		s := New(Config{Log: slog.New(log)})
		ctx, stop := context.WithCancel(t.Context())
		attempts, ended := 0, make(chan error)
		go func() {
			ended <- s.runWith(ctx, func() (*fsnotify.Watcher, error) { attempts++; return nil, syscall.EMFILE })
		}()
		time.Sleep(time.Minute) // in the bubble
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := log.count(func(r slog.Record) bool { return r.Level == slog.LevelError }); n != 1 || attempts < 5 {
			t.Errorf("%d errors, %d attempts", n, attempts)
		}
	})
}
