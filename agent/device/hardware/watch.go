package hardware

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/config"
)

// maxFolders bounds how many directories are watched.
const maxFolders = 512

// udev keeps what it has done of a device in a file of its data; while it runs, its
// control is there.
const (
	udevControl = "/run/udev/control"
	udevData    = "/run/udev/data"
)

// A watch follows the directories in which nodes, and links to them, come and go: some make
// no uevent, such as ptys and the links of udev, and where /dev is not the kernel's own
// nodes come after it.
type watch struct {
	host
	patterns []string
	inotify  *fsnotify.Watcher

	mu  sync.Mutex
	now map[string]bool
}

func newWatch(h host, classes []config.DeviceClass) (*watch, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watch{host: h, inotify: inotify, now: map[string]bool{}}
	for i := range classes {
		for _, m := range classes[i].Match {
			w.patterns = append(w.patterns, m.Paths...)
		}
	}
	return w, nil
}

// refresh watches what there is to be watched now. It reports whether something is new
// among it, where something may have come before it was watched.
func (w *watch) refresh(udev bool) (fresh bool, err error) {
	want := map[string]bool{w.at("/dev"): true}
	if udev {
		want[w.at(udevData)] = true
	}
	for _, p := range w.patterns {
		for _, dir := range w.folders(p) {
			if len(want) < maxFolders {
				want[w.at(dir)] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir := range w.now {
		if !want[dir] {
			delete(w.now, dir)
			_ = w.inotify.Remove(dir) // it may be gone, and its watch with it
		}
	}
	var errs []error
	for dir := range want {
		if w.now[dir] {
			continue
		}
		switch err := w.inotify.Add(dir); {
		case err == nil:
			w.now[dir], fresh = true, true
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return fresh, errors.Join(errs...)
}

// follow calls changed when something came or went, until ctx ends.
func (w *watch) follow(ctx context.Context, changed func()) error {
	defer w.inotify.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.inotify.Events:
			if !ok {
				return nil
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) { // with its watch, if it was a directory
				w.mu.Lock()
				delete(w.now, e.Name)
				w.mu.Unlock()
			}
			if !e.Has(fsnotify.Chmod) && !e.Has(fsnotify.Write) {
				changed()
			}
		case _, ok := <-w.inotify.Errors: // such as too much to tell
			if !ok {
				return nil
			}
			changed()
		}
	}
}
