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

// settleTime is the delay between an event and the check. The removal of a directory causes many
// events and should be complete after this delay.
const settleTime = 500 * time.Millisecond

// maxPause is the longest pause between two attempts to create a socket again.
const maxPause = time.Minute

// Config is the configuration of Sockets.
type Config struct {
	// OnLost is called before a socket is created again, so that the caller can restore other files
	// that were lost with the directory. OnLost may be nil.
	OnLost func() error
	// Dirs are directories of islet, such as the run directory. Run watches every directory between a directory
	// of Dirs and a socket, so that it detects the renaming of such a directory. Dirs may be empty.
	Dirs []string
	Log  *slog.Logger
}

// Sockets contains the listening sockets of this process.
type Sockets struct {
	Config

	mu        sync.Mutex
	listeners []*Listener // not closed
}

// New returns Sockets without listeners.
func New(c Config) *Sockets {
	if c.OnLost == nil {
		c.OnLost = func() error { return nil }
	}
	return &Sockets{Config: c}
}

// inotifyInterval is the interval of attempts to use inotify.
const inotifyInterval = 10 * time.Second

// Run creates removed sockets again until ctx ends. While inotify cannot be used, for example because other programs use all of its
// instances (fs.inotify.max_user_instances), Run logs an error once and tries again.
func (s *Sockets) Run(ctx context.Context) error { return s.runWith(ctx, fsnotify.NewWatcher) }

func (s *Sockets) runWith(ctx context.Context, newWatcher func() (*fsnotify.Watcher, error)) error {
	w, err := newWatcher()
	for logged := false; err != nil; w, err = newWatcher() {
		if !logged {
			s.Log.Error("no inotify: a removed socket of islet is not created again until inotify can be used", "error", err)
		}
		logged = true
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(inotifyInterval):
		}
	}
	defer w.Close()
	mounted := make(chan struct{}, 1)
	var listeners sync.WaitGroup
	defer listeners.Wait()
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		s.Log.Error("a socket of islet that a mount hides is not created again until islet is restarted", "error", err)
	} else {
		defer table.Close() // ends followMounts
		listeners.Go(func() { followMounts(table, mounted) })
	}
	s.watch(ctx, w, mounted)
	return nil
}

func (s *Sockets) watch(ctx context.Context, w *fsnotify.Watcher, mounted <-chan struct{}) {
	backoff, logged := retry.Backoff{FirstWindow: time.Second, MaxWindow: maxPause}, ""
	watched := map[string]bool{}
	check, pending := time.NewTimer(0), true // the first check finds a socket that was removed before the watches existed
	defer check.Stop()
	for {
		event := true
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			event = s.affectsSocket(e)
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				delete(watched, e.Name) // the watched directory was removed, which ends the watch
			}
		case <-w.Errors: // events were lost
		case <-mounted:
		case <-check.C:
			event, pending = false, false
			errs := s.restoreAll(w, watched)
			if len(errs) == 0 {
				backoff.Reset()
				logged = ""
				continue
			}
			if err := errors.Join(errs...); err.Error() != logged {
				s.Log.Error("cannot restore or watch a socket of islet; retrying", "error", err)
				logged = err.Error()
			}
			for _, err := range errs {
				if !errors.Is(err, errTaken) { // no retry is needed: when the other process closes its socket, this causes an event
					check.Reset(backoff.Next(0))
					break
				}
			}
		}
		if event && !pending {
			pending = true
			check.Reset(settleTime)
		}
	}
}

// followMounts sends a value on its channel after each change of the mount table. It returns when the file of the
// mount table is closed.
func followMounts(table *os.File, changed chan<- struct{}) {
	raw, err := table.SyscallConn()
	for err == nil {
		called := false
		// Read calls the function a second time after an event of the kernel. Each event means that the mount table
		// has changed.
		err = raw.Read(func(uintptr) bool {
			defer func() { called = true }()
			return called
		})
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// affectsSocket reports whether an event created, removed or renamed a socket or a directory above
// it.
func (s *Sockets) affectsSocket(e fsnotify.Event) bool {
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

// watchedDirs returns the directory of the socket at path. If this directory is below a directory of s.Dirs,
// watchedDirs also returns the parents up to that directory of s.Dirs.
func (s *Sockets) watchedDirs(path string) []string {
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
	return append([]*Listener(nil), s.listeners...)
}

// restoreAll creates missing sockets again and watches the directories of all sockets.
func (s *Sockets) restoreAll(w *fsnotify.Watcher, watched map[string]bool) (errs []error) {
	listeners := s.list()
	for _, l := range listeners {
		made, err := l.restore(s.OnLost)
		if err != nil {
			errs = append(errs, err)
		}
		if made {
			s.Log.Warn("created a missing socket of islet again", "socket", l.path)
		}
		for _, dir := range s.watchedDirs(l.path) {
			if watched[dir] && !made {
				continue
			}
			_ = w.Remove(dir) // an existing watch may belong to a removed directory
			delete(watched, dir)
			if err := w.Add(dir); err != nil {
				errs = append(errs, fmt.Errorf("watch %s: %w", dir, err)) // ENOSPC: the limit of watches
				continue
			}
			watched[dir] = true
		}
		if err == nil && !l.existsOrClosed() { // removed before it was watched
			errs = append(errs, errors.New(l.path+" was removed again"))
		}
	}
	return errs
}
