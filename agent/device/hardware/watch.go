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

// udev creates a file in udevData for each device that it has processed. udevControl exists while udev runs.
const (
	udevControl = "/run/udev/control"
	udevData    = "/run/udev/data"
)

// A dirWatcher watches the directories of device nodes and of links to them. It is needed in addition to uevents for two
// reasons. There are no uevents for ptys and for udev's links. If /dev is not a devtmpfs, a node appears only after its
// uevent.
type dirWatcher struct {
	host
	patterns []string
	inotify  *fsnotify.Watcher

	mu      sync.Mutex
	watched map[string]bool
}

func newWatch(h host, classes []config.DeviceClass) (*dirWatcher, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &dirWatcher{host: h, inotify: inotify, watched: map[string]bool{}}
	for i := range classes {
		for _, m := range classes[i].Match {
			w.patterns = append(w.patterns, m.Paths...)
		}
	}
	return w, nil
}

// updateDirs updates the watched directories. It returns true if it has added a directory. The caller must then scan
// again, because nodes may have appeared in the directory before it was watched.
func (w *dirWatcher) updateDirs(udev bool) (fresh bool, err error) {
	want := map[string]bool{w.absolutePath("/dev"): true}
	if udev {
		want[w.absolutePath(udevData)] = true
	}
	for _, p := range w.patterns {
		for _, dir := range w.watchDirs(p) {
			if len(want) < maxWatched {
				want[w.absolutePath(dir)] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir := range w.watched {
		if !want[dir] {
			delete(w.watched, dir)
			_ = w.inotify.Remove(dir) // fails if the directory no longer exists
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

// run calls the function changed when a file was added, removed or renamed. It returns when ctx ends.
func (w *dirWatcher) run(ctx context.Context, changed func()) error {
	defer w.inotify.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.inotify.Events:
			if !ok {
				return nil
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) { // the watch of a directory ends when the directory is removed
				w.mu.Lock()
				delete(w.watched, e.Name)
				w.mu.Unlock()
			}
			if !e.Has(fsnotify.Chmod) && !e.Has(fsnotify.Write) {
				changed()
			}
		case _, ok := <-w.inotify.Errors: // for example if the queue overflowed
			if !ok {
				return nil
			}
			changed()
		}
	}
}
