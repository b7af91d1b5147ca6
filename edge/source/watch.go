package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// A watch follows a path by inotify, and its parent, which tells when the path is
// made, replaced or removed. Without inotify it is silent.
type watch struct {
	path string
	id   identity // of what path was when its watch was added
	*fsnotify.Watcher
}

func newWatch(path string, log *slog.Logger) *watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no inotify: changed manifests are only seen at every fileCheckFrequency", "path", path, "error", err)
		return &watch{path: path}
	}
	return &watch{path: path, Watcher: w}
}

// follow adds the watches that are missing, or that are on what path was before.
// What cannot be watched is left to the regular check.
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
