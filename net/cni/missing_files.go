package cni

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/pattern"
)

const (
	maxMissing    = 16              // maximum number of missing files; a further file replaces the oldest
	maxPathLength = 1 << 10         // maximum length of the path of a missing file, in bytes
	maxErrorText  = 16 << 10        // maximum length of an error text that is searched, in bytes
	missingTime   = 2 * time.Minute // time after which a file is forgotten if no plugin has reported it again
	wakePause     = time.Second     // minimum time between two calls of appeared
)

// missingPattern matches the error text of a plugin that needs a missing file of another program. An example is flannel's "open
// /run/flannel/subnet.env: no such file or directory".
var missingPattern = pattern.New(`(/[^\s:"'` + "`" + `]+): (?:connect: )?no such file or directory`)

// missingFiles waits for files that CNI plugins have reported as missing. It uses inotify. While no file is missing, it uses no inotify
// instance and no timer.
//
//	Setup fails --addMissing(error)--> paths --run--> inotify on the nearest directory --file exists--> appeared
type missingFiles struct {
	fileAdded chan struct{} // capacity 1

	mu    sync.Mutex
	paths []missingFile // oldest first
}

type missingFile struct {
	path  string
	until time.Time
}

func newMissingFiles() *missingFiles { return &missingFiles{fileAdded: make(chan struct{}, 1)} }

// addMissing adds the file that a plugin's error reports as missing. It ignores a file that exists, because waiting for it would retry the
// pod in a busy loop. The error can name such a file in two cases: the kernel also reports "no such file" for a program whose interpreter
// is missing, and a plugin may see other files than the agent.
func (m *missingFiles) addMissing(err error) {
	text := err.Error()
	found := missingPattern().FindStringSubmatch(text[:min(len(text), maxErrorText)])
	if found == nil {
		return
	}
	path := filepath.Clean(found[1])
	if len(path) > maxPathLength || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") {
		return // inotify does not report files that the kernel creates
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		return
	}
	m.mu.Lock()
	m.paths = slices.DeleteFunc(m.paths, func(f missingFile) bool { return f.path == path })
	m.paths = append(m.paths, missingFile{path, time.Now().Add(missingTime)})
	m.paths = m.paths[max(0, len(m.paths)-maxMissing):]
	m.mu.Unlock()
	select {
	case m.fileAdded <- struct{}{}:
	default:
	}
}

// removeAppeared removes existing and expired files from the list. It returns the number of existing files, and the files that are still
// missing.
func (m *missingFiles) removeAppeared() (appeared int, waiting []missingFile) {
	m.mu.Lock()
	paths := slices.Clone(m.paths)
	m.mu.Unlock()
	exists := map[string]bool{}
	for _, f := range paths { // without holding mu, because a file system may hang
		if _, err := os.Lstat(f.path); err == nil {
			exists[f.path] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.paths = slices.DeleteFunc(m.paths, func(f missingFile) bool { return exists[f.path] || !now.Before(f.until) })
	return len(exists), slices.Clone(m.paths)
}

// run calls appeared when a missing file appears. It returns when ctx ends.
func (m *missingFiles) run(ctx context.Context, appeared func(), log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.fileAdded:
		}
		if err := m.waitForFiles(ctx, appeared); err != nil {
			log.Warn("cannot watch for a file that a CNI plugin needs; pods that wait for it are retried later", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakePause):
		}
	}
}

// waitForFiles watches until no file is missing any more. It checks the files at most once per settleTime, because a directory may have
// many changes.
func (m *missingFiles) waitForFiles(ctx context.Context, appeared func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	check, pending, wait := time.NewTimer(settleTime), true, settleTime
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.fileAdded:
		case e := <-watcher.Events:
			if e.Op == fsnotify.Chmod {
				continue
			}
		case <-watcher.Errors: // events were lost
		case <-check.C:
			pending, wait = false, settleTime
			n, waiting := m.removeAppeared()
			if n > 0 {
				appeared()
				wait = wakePause
			}
			if len(waiting) == 0 {
				return nil
			}
			if changed, err := watchNearest(watcher, waiting); err != nil {
				return err
			} else if !changed {
				check.Reset(max(time.Until(waiting[0].until), wait))
				continue
			}
		}
		if !pending { // after a new watch, check once more, because the file may have been created just before
			check.Reset(wait)
			pending = true
		}
	}
}

// watchNearest watches the nearest existing directory of each file, and removes all other watches. It reports whether it added a watch.
func watchNearest(watcher *fsnotify.Watcher, files []missingFile) (changed bool, err error) {
	dirs := map[string]bool{}
	for _, f := range files {
		dirs[nearestExisting(filepath.Dir(f.path))] = true
	}
	for _, old := range watcher.WatchList() {
		if !dirs[old] {
			_ = watcher.Remove(old) // fails if the directory is gone, together with its watch
		}
		delete(dirs, old)
	}
	for dir := range dirs {
		if err := watcher.Add(dir); err != nil && !os.IsNotExist(err) {
			return false, err
		}
		changed = true
	}
	return changed, nil
}
