package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// A watch reports changes of a path with inotify. It also watches the parent directory, to detect that the path is created, replaced or
// removed. If inotify is not available, it sends no events.
type watch struct {
	path string
	id   identity // identity of the watched directory
	*fsnotify.Watcher
}

func newWatch(path string, log *slog.Logger) *watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("inotify is not available: changed manifests are noticed only every fileCheckFrequency", "path", path, "error", err)
		return &watch{path: path}
	}
	return &watch{path: path, Watcher: w}
}

// updateWatches adds missing watches, and replaces the watch of a replaced directory. The regular check covers paths that cannot be
// watched.
func (w *watch) updateWatches() {
	if w.Watcher == nil {
		return
	}
	watched := w.WatchList()
	if parent := filepath.Dir(w.path); !slices.Contains(watched, parent) {
		_ = w.Add(parent)
	}
	fi, err := os.Stat(w.path)
	if err != nil || !fi.IsDir() {
		return
	}
	id := identity{dev: fileIdentity(fi).dev, ino: fileIdentity(fi).ino}
	if id != w.id || !slices.Contains(watched, w.path) {
		_ = w.Remove(w.path)
		if w.Add(w.path) == nil {
			w.id = id
		}
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.Watcher == nil {
		return nil
	}
	return w.Events
}

func (w *watch) errors() <-chan error {
	if w.Watcher == nil {
		return nil
	}
	return w.Errors
}

func (w *watch) close() {
	if w.Watcher != nil {
		w.Close()
	}
}
