package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/retry"
)

// settleTime is how long Run waits after an event: who removes a directory is then done with
// it, and many events are one.
const settleTime = 500 * time.Millisecond

// lastRetry is the longest pause between two attempts to make a socket again.
const lastRetry = time.Minute

// Config is what Sockets need.
type Config struct {
	// Lost is called before a socket is made again: the directories around it may be lost,
	// too. nil: there is nothing else to restore.
	Lost func() error
	// Dirs are directories of islet, such as the run directory. Run also notices when one of
	// them is renamed, or a directory between it and a socket. 0 or more.
	Dirs []string
	Log  *slog.Logger
}

// Sockets are those of this process.
type Sockets struct {
	Config

	mu  sync.Mutex
	all []*Listener // that are not closed
}

// New opens nothing.
func New(c Config) *Sockets {
	if c.Lost == nil {
		c.Lost = func() error { return nil }
	}
	return &Sockets{Config: c}
}

// Run makes sockets again that were removed, until ctx ends. It knows those that Listen made
// before it, and fails only on a host without inotify, where it returns nil at once.
func (s *Sockets) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.Log.Error("no inotify: sockets of islet that somebody removes are gone until islet is restarted", "error", err)
		return nil
	}
	defer w.Close()
	mounted := make(chan struct{}, 1)
	var all sync.WaitGroup
	defer all.Wait()
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		s.Log.Error("sockets of islet that a mount hides are gone until islet is restarted", "error", err)
	} else {
		defer table.Close() // ends follow
		all.Go(func() { follow(table, mounted) })
	}
	s.loop(ctx, w, mounted)
	return nil
}

func (s *Sockets) loop(ctx context.Context, w *fsnotify.Watcher, mounted <-chan struct{}) {
	again, told := retry.Backoff{First: time.Second, Most: lastRetry}, ""
	watched := map[string]bool{}
	look, settles := time.NewTimer(0), true // what was removed before is found as well
	defer look.Stop()
	for {
		event := true
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			event = s.concerns(e)
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				delete(watched, e.Name) // if it was a directory: its watch ended with it
			}
		case <-w.Errors: // events were lost
		case <-mounted:
		case <-look.C:
			event, settles = false, false
			errs := s.look(w, watched)
			if len(errs) == 0 {
				again.Reset()
				told = ""
				continue
			}
			if err := errors.Join(errs...); err.Error() != told {
				s.Log.Error("a socket of islet is gone or is not watched, and that cannot be mended yet", "error", err)
				told = err.Error()
			}
			for _, err := range errs {
				if !errors.Is(err, errTaken) { // the end of the other process's socket is an event
					look.Reset(again.Next(0))
					break
				}
			}
		}
		if event && !settles {
			settles = true
			look.Reset(settleTime)
		}
	}
}

// follow tells of each change of the mounts until the table is closed.
func follow(table *os.File, changed chan<- struct{}) {
	raw, err := table.SyscallConn()
	for err == nil {
		asked := false
		err = raw.Read(func(uintptr) bool { // called again by each event of the kernel's, which says that the table is another
			defer func() { asked = true }()
			return asked
		})
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// concerns reports whether something came or went at the path of a socket, or a directory above it.
func (s *Sockets) concerns(e fsnotify.Event) bool {
	if e.Has(fsnotify.Write) || e.Has(fsnotify.Chmod) {
		return false
	}
	for _, l := range s.list() {
		if e.Name == l.path || strings.HasPrefix(l.path, e.Name+"/") {
			return true
		}
	}
	return false
}

// dirs returns the directory of a socket, and those above it up to the one of s.Dirs that it is in.
func (s *Sockets) dirs(path string) []string {
	dir := filepath.Dir(path)
	dirs := []string{dir}
	for _, top := range s.Dirs {
		if strings.HasPrefix(dir, top+"/") {
			for dir != top {
				dir = filepath.Dir(dir)
				dirs = append(dirs, dir)
			}
			break
		}
	}
	return dirs
}

func (s *Sockets) list() []*Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Listener(nil), s.all...)
}

// look makes what is gone again, and watches the directories that are not watched yet.
func (s *Sockets) look(w *fsnotify.Watcher, watched map[string]bool) (errs []error) {
	all := s.list()
	for _, l := range all {
		made, err := l.restore(s.Lost)
		if err != nil {
			errs = append(errs, err)
		}
		if made {
			s.Log.Warn("a socket of islet was missing and has been made again", "socket", l.path)
		}
		for _, dir := range s.dirs(l.path) {
			if watched[dir] && !made {
				continue
			}
			_ = w.Remove(dir) // the watch may be of a directory that is gone
			delete(watched, dir)
			if err := w.Add(dir); err != nil {
				errs = append(errs, fmt.Errorf("watch %s: %w", dir, err)) // such as "no space left": for watches
				continue
			}
			watched[dir] = true
		}
		if err == nil && !l.isThere() { // removed before it was watched
			errs = append(errs, errors.New(l.path+" was removed again"))
		}
	}
	return errs
}
