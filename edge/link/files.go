package link

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long files must be quiet before they are read: a certificate and
	// its key are two files.
	settle = 200 * time.Millisecond
	// drainMost is how long after the first change they are read, also while there are more.
	drainMost = 5 * time.Second
	// recheck is how often directories that cannot be watched, or are not there yet,
	// are looked at.
	recheck = time.Minute
)

// files tells when a file of credentials that somebody else keeps may have changed.
type files struct {
	dirs   map[string]struct{}
	own    string // of them, the one that this package writes to
	reload func()
}

func newFiles(l *Link) *files {
	f := &files{dirs: map[string]struct{}{}, own: filepath.Clean(l.cfg.CertDir), reload: func() {
		l.identity.filesChanged()
		l.serving.filesChanged()
	}}
	for _, path := range []string{l.cfg.Kubeconfig, l.cfg.BootstrapKubeconfig, l.cfg.TLSCertFile, l.cfg.TLSKeyFile} {
		if path != "" {
			f.dirs[filepath.Dir(path)] = struct{}{}
		}
	}
	if len(f.dirs) > 0 {
		f.dirs[f.own] = struct{}{}
	}
	return f
}

// watch begins to follow the directories, before anybody reads what is in them: a change
// after that makes an event. It gives nil when there is nothing to follow, and without
// inotify, when the recheck has to do.
func (f *files) watch() *fsnotify.Watcher {
	if len(f.dirs) == 0 {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	_ = os.MkdirAll(f.own, 0o755) // now, so that it is no news later
	_, _ = f.follow(w)
	f.reload()
	return w
}

// run reloads until ctx ends, and closes what watch gave.
func (f *files) run(ctx context.Context, w *fsnotify.Watcher) error {
	if len(f.dirs) == 0 {
		<-ctx.Done()
		return nil
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w != nil {
		defer w.Close()
		events, failures = w.Events, w.Errors
	}
	quiet := time.NewTimer(recheck)
	defer quiet.Stop()
	for {
		wait := recheck
		if w != nil {
			all, fresh := f.follow(w)
			if fresh { // of what happened there before nobody was told
				f.reload()
			}
			if all {
				wait = time.Duration(1<<63 - 1)
			}
		}
		quiet.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if passing(e.Name) {
				continue
			}
			if !f.drain(ctx, events) {
				return nil
			}
			f.reload()
		case <-failures:
			f.reload()
		case <-quiet.C:
			f.reload()
		}
	}
}

// passing tells whether a file is one that this package writes and that says nothing: the
// key of a request, and what is not whole yet. To read the credentials anew for it would
// end the wait after a request that failed, which writes it again.
func passing(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, ".kubelet-") || strings.HasPrefix(name, "kubelet-") && strings.HasSuffix(name, ".key.tmp")
}

// follow watches the directories, and tells whether all of them are watched, and whether
// one was not before.
func (f *files) follow(w *fsnotify.Watcher) (all, fresh bool) {
	has := w.WatchList()
	all = true
	for dir := range f.dirs {
		there := w.Add(dir) == nil
		all = all && there
		fresh = fresh || there && !slices.Contains(has, dir)
	}
	return all, fresh
}

// drain reads events until there is none for a while, or for drainMost.
func (f *files) drain(ctx context.Context, events <-chan fsnotify.Event) bool {
	for began := time.Now(); time.Since(began) < drainMost; {
		quiet := time.NewTimer(settle)
		select {
		case <-events:
			quiet.Stop()
		case <-quiet.C:
			return true
		case <-ctx.Done():
			quiet.Stop()
			return false
		}
	}
	return true
}
