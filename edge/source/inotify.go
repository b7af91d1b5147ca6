package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
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

// localFileSystems contains the file systems whose changes are all made by this machine, so that inotify reports them.
var localFileSystems = map[uint32]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true,
}

// reportsAll reports whether inotify reports the usual changes of the manifests: writes, renames and removals. A write through another hard
// link or a mapping, and a mount over one file, wait for the next check. The result is false if the path is missing or not on a local
// file system, or if the path or a file in it is a symbolic link, whose target is not watched.
func (w *watch) reportsAll() bool {
	if w.Watcher == nil {
		return false
	}
	watched := w.WatchList()
	if !slices.Contains(watched, w.path) || !slices.Contains(watched, filepath.Dir(w.path)) {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(w.path, &fs); err != nil || !localFileSystems[uint32(fs.Type)] {
		return false
	}
	if real, err := filepath.EvalSymlinks(w.path); err != nil || real != w.path {
		return false
	}
	entries, err := os.ReadDir(w.path)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Type()&os.ModeSymlink != 0 })
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
