package hardware

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/config"
)

// maxWatched is the maximum number of watched directories.
const maxWatched = 512

// udev creates a file in udevData for each device that it has processed. udevControl exists
// while udev runs.
const (
	udevControl = "/run/udev/control"
	udevData    = "/run/udev/data"
)

// A watch watches the directories of nodes and of links to them. Some changes there have no
// uevent, such as ptys and udev's links. If /dev is not a devtmpfs, nodes appear after the
// uevent.
type watch struct {
	host
	patterns []string
	inotify  *fsnotify.Watcher

	mu      sync.Mutex
	watched map[string]bool
}

func newWatch(h host, classes []config.DeviceClass) (*watch, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watch{host: h, inotify: inotify, watched: map[string]bool{}}
	for i := range classes {
		for _, m := range classes[i].Match {
			w.patterns = append(w.patterns, m.Paths...)
		}
	}
	return w, nil
}

// refresh updates the watched directories. It reports whether one was added: then nodes may have
// appeared there before the watch began.
func (w *watch) refresh(udev bool) (fresh bool, err error) {
	want := map[string]bool{w.at("/dev"): true}
	if udev {
		want[w.at(udevData)] = true
	}
	for _, p := range w.patterns {
		for _, dir := range w.watchDirs(p) {
			if len(want) < maxWatched {
				want[w.at(dir)] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir := range w.watched {
		if !want[dir] {
			delete(w.watched, dir)
			_ = w.inotify.Remove(dir) // fails if the directory was removed
		}
	}
	var errs []error
	for dir := range want {
		if w.watched[dir] {
			continue
		}
		switch err := w.inotify.Add(dir); {
		case err == nil:
			w.watched[dir], fresh = true, true
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return fresh, errors.Join(errs...)
}

// resolve calls changed when something came or went, until ctx ends.
func (w *watch) run(ctx context.Context, changed func()) error {
	defer w.inotify.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.inotify.Events:
			if !ok {
				return nil
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) { // a removed directory loses its watch
				w.mu.Lock()
				delete(w.watched, e.Name)
				w.mu.Unlock()
			}
			if !e.Has(fsnotify.Chmod) && !e.Has(fsnotify.Write) {
				changed()
			}
		case _, ok := <-w.inotify.Errors: // such as an overflow of the queue
			if !ok {
				return nil
			}
			changed()
		}
	}
}
