package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// A watch watches a path by inotify. It also watches the parent directory, which reports the
// creation, replacement and removal of the path. Without inotify it sends no events.
type watch struct {
	path string
	id   identity // of the watched directory
	*fsnotify.Watcher
}

func newWatch(path string, log *slog.Logger) *watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("inotify is not available: changed manifests are only noticed every fileCheckFrequency", "path", path, "error", err)
		return &watch{path: path}
	}
	return &watch{path: path, Watcher: w}
}

// follow adds missing watches, and replaces the watch of a directory that was replaced. Paths
// that cannot be watched are covered by the regular check.
func (w *watch) follow() {
	if w.Watcher == nil {
		return
	}
	has := w.WatchList()
	if parent := filepath.Dir(w.path); !slices.Contains(has, parent) {
		_ = w.Add(parent)
	}
	fi, err := os.Stat(w.path)
	if err != nil || !fi.IsDir() {
		return
	}
	id := identity{dev: identify(fi).dev, ino: identify(fi).ino}
	if id != w.id || !slices.Contains(has, w.path) {
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
