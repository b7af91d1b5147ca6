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
	// quietTime is the time without changes after which files are read. A certificate and its key are two files that change one after the
	// other.
	quietTime = 200 * time.Millisecond
	// maxDrain is the maximum time from a change until the files are read.
	maxDrain = 5 * time.Second
	// recheckInterval is the interval for checking directories that are missing or cannot be watched.
	recheckInterval = time.Minute
)

// credentialFiles watches the files of the credentials. It reloads the credentials when another program may have changed the files.
type credentialFiles struct {
	dirs   map[string]struct{}
	ownDir string // the directory to which this package writes its files
	reload func()
}

func newFiles(l *Link) *credentialFiles {
	f := &credentialFiles{dirs: map[string]struct{}{}, ownDir: filepath.Clean(l.cfg.CertDir), reload: func() {
		l.identity.filesChanged()
		l.serving.filesChanged()
	}}
	for _, path := range []string{l.cfg.Kubeconfig, l.cfg.BootstrapKubeconfig, l.cfg.TLSCertFile, l.cfg.TLSKeyFile} {
		if path != "" {
			f.dirs[filepath.Dir(path)] = struct{}{}
		}
	}
	if len(f.dirs) > 0 {
		f.dirs[f.ownDir] = struct{}{}
	}
	return f
}

// watch starts to watch the directories and then reloads the credentials, in this order, so that no change after the read is missed. It
// returns nil if there is nothing to watch, or if inotify is not available. If inotify is not available, the credentials are reloaded in
// intervals of recheckInterval.
func (f *credentialFiles) watch() *fsnotify.Watcher {
	if len(f.dirs) == 0 {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	_ = os.MkdirAll(f.ownDir, 0o755) // created before the watch, so that the creation does not count as a change
	_, _ = f.addWatches(w)
	f.reload()
	return w
}

// run calls reload after each change until ctx ends. At the end it closes the watcher w.
func (f *credentialFiles) run(ctx context.Context, w *fsnotify.Watcher) error {
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
	quiet := time.NewTimer(recheckInterval)
	defer quiet.Stop()
	for {
		wait := recheckInterval
		if w != nil {
			all, fresh := f.addWatches(w)
			if fresh { // the directory was not watched before, so earlier changes caused no events
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
			if isTemporary(e.Name) {
				continue
			}
			if !f.drainEvents(ctx, events) {
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

// isTemporary reports whether a file is a temporary file of this package: the key of a pending request, or an incomplete file. Each failed
// request writes such a file. If this caused a reload of the credentials, the reload would end the back-off of the request.
func isTemporary(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, ".kubelet-") || strings.HasPrefix(name, "kubelet-") && strings.HasSuffix(name, ".key.tmp")
}

// addWatches adds missing watches. The first result is true if all directories are watched. The second result is true if a watch was added.
func (f *credentialFiles) addWatches(w *fsnotify.Watcher) (all, fresh bool) {
	watched := w.WatchList()
	all = true
	for dir := range f.dirs {
		ok := w.Add(dir) == nil
		all = all && ok
		fresh = fresh || ok && !slices.Contains(watched, dir)
	}
	return all, fresh
}

// drainEvents reads events until no event arrives for quietTime, or until maxDrain has passed. It returns false if ctx has ended.
func (f *credentialFiles) drainEvents(ctx context.Context, events <-chan fsnotify.Event) bool {
	for began := time.Now(); time.Since(began) < maxDrain; {
		quiet := time.NewTimer(quietTime)
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
