package link

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long files must be quiet before they are read: a certificate and
	// its key are two files.
	settle = 200 * time.Millisecond
	// recheck is how often directories that cannot be watched, or are not there yet,
	// are looked at.
	recheck = time.Minute
)

// files tells when a file of credentials that somebody else keeps may have changed.
type files struct {
	dirs   map[string]struct{}
	reload func()
}

func newFiles(l *Link) *files {
	f := &files{dirs: map[string]struct{}{}, reload: func() {
		l.identity.filesChanged()
		l.serving.filesChanged()
	}}
	for _, path := range []string{l.cfg.Kubeconfig, l.cfg.BootstrapKubeconfig, l.cfg.TLSCertFile, l.cfg.TLSKeyFile} {
		if path != "" {
			f.dirs[filepath.Dir(path)] = struct{}{}
		}
	}
	if len(f.dirs) > 0 {
		f.dirs[l.cfg.CertDir] = struct{}{}
	}
	return f
}

func (f *files) run(ctx context.Context) error {
	if len(f.dirs) == 0 {
		<-ctx.Done()
		return nil
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	w, err := fsnotify.NewWatcher()
	if err == nil { // without inotify the recheck has to do
		defer w.Close()
		events, failures = w.Events, w.Errors
	}
	quiet := time.NewTimer(recheck)
	defer quiet.Stop()
	for {
		wait := recheck
		if w != nil && f.follow(w) {
			wait = time.Duration(1<<63 - 1)
		}
		quiet.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-events:
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

// follow watches the directories and tells whether that succeeded for all.
func (f *files) follow(w *fsnotify.Watcher) bool {
	all := true
	for dir := range f.dirs {
		all = w.Add(dir) == nil && all
	}
	return all
}

// drain reads events until there is none for a while.
func (f *files) drain(ctx context.Context, events <-chan fsnotify.Event) bool {
	for {
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
}
