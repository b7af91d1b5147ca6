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
	// settleTime is how long a directory is left alone after a change: add-ons write
	// their configuration in several steps.
	settleTime = 100 * time.Millisecond
	// settleMost is how long after the first change it is looked at, also while there are more.
	settleMost = 2 * time.Second
)

// A dirWatch follows a directory by inotify; while it does not exist, the next
// directory above that does. Without inotify it is silent.
type dirWatch struct {
	dir string
	at  string // what is watched
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
	return w, w.follow()
}

// follow moves the watch to the directory, or as near to it as there is one. It
// looks again after each step: what is made meanwhile is not announced.
func (w *dirWatch) follow() error {
	for {
		near := nearest(w.dir)
		if near == w.at {
			return nil
		}
		if w.at != "" {
			_ = w.Remove(w.at) // it may be gone, and its watch with it
		}
		w.at = ""
		if err := w.Add(near); err != nil && !os.IsNotExist(err) {
			return err
		} else if err == nil {
			w.at = near
		}
	}
}

// nearest returns the path or the directory above it that exists.
func nearest(path string) string {
	for path != "/" && path != "." {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// concerns says whether an event may be about the directory or its content.
func (w *dirWatch) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	if e.Name == w.at && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		w.at = "" // the watch ended with it
	}
	return w.at == w.dir || w.at == "" || e.Name == w.dir || strings.HasPrefix(w.dir, e.Name+"/")
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

// Run follows the CNI directory, and moves the node from the built-in network to
// one that appears there; and it repairs the built-in network after others damaged it. It
// returns when ctx has ended.
func (n *Network) Run(ctx context.Context) error {
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		n.keepUp(ctx)
	}()
	err := n.followDir(ctx)
	<-kept
	return err
}

func (n *Network) followDir(ctx context.Context) error {
	watch, err := watchDir(n.plugins.confs.dir)
	defer watch.close()
	if err != nil {
		n.cfg.Log.Warn("changes of the CNI configuration are seen late", "dir", watch.dir, "error", err)
	}
	due, cut := time.NewTimer(0), time.NewTimer(0)
	defer due.Stop()
	defer cut.Stop()
	cut.Stop()
	last, lastWhy, why := n.now(), "", "" // why there is no network
	var late time.Time                    // when it is looked at although changes go on; zero: there were none
	changed := func() {
		now := time.Now()
		if late.IsZero() {
			late = now.Add(settleMost)
		}
		due.Reset(min(settleTime, late.Sub(now)))
	}
	for {
		force := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-watch.events():
			if watch.concerns(e) {
				changed()
			}
			continue
		case <-watch.errors(): // such as more events than could be told; unread, it was the last news
			changed()
			continue
		case <-due.C:
			late = time.Time{}
			if err := watch.refresh(); err != nil {
				n.cfg.Log.Warn("changes of the CNI configuration are seen late", "dir", watch.dir, "error", err)
			}
			why = ""
			if _, err := n.look(); err != nil {
				why = err.Error()
			}
		case <-n.poked:
		case <-cut.C:
			force = true
		}
		gone := n.move(force)
		now := n.now()
		if now.moving() && (!last.moving() || force) {
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
	return w.follow()
}
