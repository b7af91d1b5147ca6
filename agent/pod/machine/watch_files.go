package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is the maximum number of symbolic links of one path that are followed.
const maxLinks = 8

// A fileWatch uses inotify to watch files that other programs write. A file and its directories may be missing, and a file may be a
// symbolic link into another directory. If inotify is not available, the fileWatch reports no events.
type fileWatch struct {
	files   func() []string // returns the paths of the files
	paths   []string        // the files and the targets of symbolic links
	watcher *fsnotify.Watcher
	err     error // the error of a watch that could not be added
}

func watchFiles(files func() []string) *fileWatch {
	w := &fileWatch{files: files}
	if len(files()) == 0 {
		return w
	}
	if w.watcher, w.err = fsnotify.NewWatcher(); w.err != nil {
		w.watcher = nil
	}
	w.update()
	return w
}

// update watches the nearest existing directory of each path. A directory may be created just before its watch starts, so update repeats
// until the directories stay the same. A former directory stays watched, without an effect, until it is removed.
func (w *fileWatch) update() {
	if w.watcher == nil {
		return
	}
	var dirs []string
	for range 2 * maxLinks {
		before := dirs
		w.err, w.paths, dirs = nil, nil, nil
		for _, f := range w.files() {
			w.paths = append(w.paths, followLinks(f)...)
		}
		for _, p := range w.paths {
			dirs = append(dirs, nearestDir(filepath.Dir(p)))
		}
		if slices.Equal(dirs, before) {
			return
		}
		for _, dir := range dirs {
			if err := w.watcher.Add(dir); err != nil && !os.IsNotExist(err) {
				w.err = err
			}
		}
	}
}

// followLinks returns path and, if it is a symbolic link, the targets of the chain of links.
func followLinks(path string) []string {
	out := []string{filepath.Clean(path)}
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = filepath.Clean(target)
		out = append(out, path)
	}
	return out
}

// nearestDir returns the path if it is a directory, or else the nearest parent that exists.
func nearestDir(path string) string {
	for path != "/" && path != "." {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// isRelevant reports whether an event may be about one of the paths or its directories.
func (w *fileWatch) isRelevant(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	return slices.ContainsFunc(w.paths, func(p string) bool { return p == e.Name || strings.HasPrefix(p, e.Name+"/") })
}

func (w *fileWatch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *fileWatch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *fileWatch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}
