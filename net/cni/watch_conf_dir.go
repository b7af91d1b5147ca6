package cni

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleTime is the delay between a change of the directory and its check. Add-ons write their configuration in several steps.
	settleTime = 100 * time.Millisecond
	// maxSettle is the maximum delay after the first change, even if changes continue.
	maxSettle = 2 * time.Second
)

// A dirWatch watches a directory with inotify. While the directory does not exist, it watches the nearest existing parent. If inotify is
// not available, it reports no events.
type dirWatch struct {
	dir        string
	watchedDir string // the watched directory
	*fsnotify.Watcher
}

func watchDir(dir string) (*dirWatch, error) {
	w := &dirWatch{dir: dir}
	if dir == "" {
		return w, nil
	}
	var err error
	if w.Watcher, err = fsnotify.NewWatcher(); err != nil {
		w.Watcher = nil
		return w, err
	}
	return w, w.moveWatch()
}

// moveWatch moves the watch to the directory or its nearest existing parent. The directory may be created just before the watch starts,
// which causes no event. The move is therefore repeated until the watched directory stays the same.
func (w *dirWatch) moveWatch() error {
	for {
		near := nearestExisting(w.dir)
		if near == w.watchedDir {
			return nil
		}
		if w.watchedDir != "" {
			_ = w.Remove(w.watchedDir) // fails if the directory is gone, together with its watch
		}
		w.watchedDir = ""
		if err := w.Add(near); err != nil && !os.IsNotExist(err) {
			return err
		} else if err == nil {
			w.watchedDir = near
		}
	}
}

// nearestExisting returns the path if it is an existing directory, or else the nearest parent directory that exists.
func nearestExisting(path string) string {
	for path != "/" && path != "." {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// isRelevant reports whether an event may be about the directory or a file in it.
func (w *dirWatch) isRelevant(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	if e.Name == w.watchedDir && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		w.watchedDir = "" // the watched directory was removed, which ends the watch
	}
	return w.watchedDir == w.dir || w.watchedDir == "" || e.Name == w.dir || strings.HasPrefix(w.dir, e.Name+"/")
}

func (w *dirWatch) events() <-chan fsnotify.Event {
	if w.Watcher == nil {
		return nil
	}
	return w.Events
}

func (w *dirWatch) errors() <-chan error {
	if w.Watcher == nil {
		return nil
	}
	return w.Errors
}

func (w *dirWatch) close() {
	if w.Watcher != nil {
		w.Close()
	}
}

// Run watches the CNI directory and the files that plugins reported as missing. It moves the node from the built-in network to the
// network that the CNI directory configures, and repairs the built-in network. It returns when ctx ends.
func (n *Network) Run(ctx context.Context) error {
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		n.repairLoop(ctx)
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		n.missing.run(ctx, func() {
			if n.cfg.Changed != nil {
				n.cfg.Changed()
			}
		}, n.cfg.Log)
	}()
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		n.removeEndedLoop(ctx)
	}()
	err := n.followDir(ctx)
	<-kept
	<-watched
	<-removed
	return err
}

func (n *Network) followDir(ctx context.Context) error {
	watch, err := watchDir(n.plugins.confs.dir)
	defer watch.close()
	if err != nil {
		n.cfg.Log.Warn("cannot watch the CNI configuration; changes are found late", "dir", watch.dir, "error", err)
	}
	due, cut := time.NewTimer(0), time.NewTimer(0)
	defer due.Stop()
	defer cut.Stop()
	cut.Stop()
	last, lastWhy, why := n.currentPhase(), "", "" // the last value, why: the current reason for having no network
	var late time.Time                             // the latest time for the next check; zero if nothing has changed
	changed := func() {
		now := time.Now()
		if late.IsZero() {
			late = now.Add(maxSettle)
		}
		due.Reset(min(settleTime, late.Sub(now)))
	}
	for {
		force := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-watch.events():
			if watch.isRelevant(e) {
				changed()
			}
			continue
		case <-watch.errors(): // events were lost; the channel must be read, or the watcher blocks
			changed()
			continue
		case <-due.C:
			late = time.Time{}
			if err := watch.refresh(); err != nil {
				n.cfg.Log.Warn("cannot watch the CNI configuration; changes are found late", "dir", watch.dir, "error", err)
			}
			why = ""
			if _, err := n.checkDirectory(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				why = err.Error()
				due.Reset(statusTime) // the error may come from a STATUS command that began before the change
			}
		case <-n.checkMoved:
		case <-cut.C:
			force = true
		}
		gone := n.finishMove(force)
		now := n.currentPhase()
		if now.isMoving() && (!last.isMoving() || force) {
			cut.Reset(moveTime)
		}
		if (gone || now != last || why != lastWhy) && n.cfg.Changed != nil {
			n.cfg.Changed()
		}
		last, lastWhy = now, why
	}
}

func (w *dirWatch) refresh() error {
	if w.Watcher == nil {
		return nil
	}
	return w.moveWatch()
}
