package image

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/fsnotify/fsnotify"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/cri"
)

// Imports persistently stores which archives were imported. A key is the digest of an archive's
// content, or has the prefix "file:" or "image:"; the Inbox creates the keys.
type Imports interface {
	Imported(ctx context.Context, key string) (bool, error)
	// AddImport has stored the key durably when it returns. Adding a key again is success.
	AddImport(ctx context.Context, key, name string) error
}

// InboxConfig configures NewInbox.
type InboxConfig struct {
	// Dir is the directory of archives. It is created if it does not exist.
	Dir     string
	Service *Service
	Imports Imports
	// Report is called with a file's name and the error of its import, and with nil once the import
	// has succeeded or the file is gone. It must not block. If nil, errors are logged.
	Report func(file string, err error)
	Log    *slog.Logger
}

// Inbox imports the image archives in a directory, one after the other, in the background. It reads
// a file once no process has it open for writing. It ignores names that begin with a dot, so a
// writer can also rename a file to its final name.
//
// An archive is imported once, even if it is copied again or the node restarts: imported archives
// are stored by content, and by inode, size and times so that a start does not read every archive.
// An image that was removed while its archive stays is not imported again automatically, because
// someone removed it on purpose. When a pod needs it, WaitImage makes the Inbox import it again.
type Inbox struct {
	c     InboxConfig
	again chan struct{} // capacity 1: look now, and ignore what was imported before

	mu    sync.Mutex
	turn  chan struct{}   // closed and replaced when an import or a look has ended
	idle  bool            // the last look left nothing to import
	vain  map[string]bool // images that a forced look did not find
	force bool
}

const (
	// settle is the delay between a change of the directory and the look; further changes extend
	// it, by retryOpen at most. retryOpen is also the delay after a file that is still being
	// written was seen.
	settle    = 100 * time.Millisecond
	retryOpen = time.Second
	// lookEvery is the interval of looks without any event, for directories that send none.
	lookEvery = time.Minute
	// maxRetry is the maximum delay between attempts to import after an error that is not caused by
	// the archive, such as a full disk.
	maxRetry = time.Hour
)

// NewInbox returns an Inbox. Run starts it.
func NewInbox(c InboxConfig) (*Inbox, error) {
	switch {
	case c.Dir == "":
		return nil, errors.New("image inbox: no directory")
	case c.Service == nil || c.Imports == nil || c.Log == nil:
		return nil, errors.New("image inbox: no service, imports or logger")
	}
	if c.Report == nil {
		c.Report = func(file string, err error) {
			if err != nil {
				c.Log.Warn("an image archive could not be imported", "file", file, "error", err)
			}
		}
	}
	return &Inbox{c: c, again: make(chan struct{}, 1), turn: make(chan struct{}), vain: map[string]bool{}}, nil
}

// WaitImage returns when the image exists, when no archive in the inbox can contain it any more, or
// when ctx ends. Until the first look has ended, every archive may contain it.
func (b *Inbox) WaitImage(ctx context.Context, ref string) error {
	for asked := false; ; {
		b.mu.Lock()
		turn, idle := b.turn, b.idle && !b.force
		vain := b.vain[ref]
		b.mu.Unlock()
		_, err := b.c.Service.Resolve(ctx, ref)
		if err == nil || !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
		if idle {
			if asked {
				b.mu.Lock()
				b.vain[ref] = true
				b.mu.Unlock()
			}
			if asked || vain || !b.importedBefore(ctx, ref) {
				return nil
			}
			asked = true
			b.lookAgain()
			continue
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// importedBefore reports whether an archive with this image was imported before.
func (b *Inbox) importedBefore(ctx context.Context, ref string) bool {
	named, err := normalize(ref)
	if err != nil {
		return false
	}
	yes, err := b.c.Imports.Imported(ctx, imageKey(named.String()))
	if err != nil {
		b.c.Log.Warn("the record of an earlier import of the image could not be read", "image", ref, "error", err)
	}
	return yes
}

func (b *Inbox) lookAgain() {
	b.mu.Lock()
	b.force = true
	b.mu.Unlock()
	select {
	case b.again <- struct{}{}:
	default:
	}
}

func imageKey(ref string) string { return "image:" + ref }

// Run imports archives until ctx ends.
func (b *Inbox) Run(ctx context.Context) error {
	// An unreadable inbox must not stop anything else: each look reports it.
	if err := os.MkdirAll(b.c.Dir, 0o700); err != nil {
		b.c.Log.Warn("the image inbox could not be created", "dir", b.c.Dir, "error", err)
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
		err = watcher.Add(b.c.Dir)
	}
	if err != nil {
		b.c.Log.Warn("the image inbox cannot be watched: it is read at intervals", "dir", b.c.Dir, "every", lookEvery, "error", err)
	}
	l := &looker{inbox: b, files: map[string]*archiveFile{}}
	due := time.NewTimer(0)
	defer due.Stop()
	var late time.Time // deadline of a look that events delay; zero: none is delayed
	changed := func() {
		now := time.Now()
		if late.IsZero() {
			late = now.Add(retryOpen)
		}
		due.Reset(min(settle, late.Sub(now)))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			changed()
		case <-failures: // such as an event overflow; if it were not read, the watcher would stop
			changed()
		case <-b.again:
			l.forget()
			due.Reset(0)
		case <-due.C:
			late = time.Time{}
			next := l.look(ctx)
			if watcher != nil && next == lookEvery {
				_ = watcher.Add(b.c.Dir) // it may have been replaced; if this fails, the next look reports it
			}
			due.Reset(next)
		}
	}
}

// tell wakes the callers of WaitImage.
func (b *Inbox) tell(idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = idle
	close(b.turn)
	b.turn = make(chan struct{})
}

// looker is Run's state of the files in the directory.
type looker struct {
	inbox  *Inbox
	files  map[string]*archiveFile
	forced bool // ignore what was imported before
	blind  bool // the directory could not be read
}

// forget makes the next look import everything again.
func (l *looker) forget() {
	l.forced = true
	clear(l.files)
}

// look imports new files in the directory and returns the delay until the next look.
func (l *looker) look(ctx context.Context) (next time.Duration) {
	b := l.inbox
	next = lookEvery
	list, err := os.ReadDir(b.c.Dir)
	if (err != nil) != l.blind {
		l.blind = err != nil
		b.c.Report(b.c.Dir, err)
	}
	there := map[string]bool{}
	for _, e := range list {
		path := filepath.Join(b.c.Dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		there[path] = true
		open, err := l.file(ctx, path)
		if ctx.Err() != nil {
			return next
		}
		if open {
			next = retryOpen
		}
		if err != nil {
			b.c.Report(path, err)
		}
	}
	for path, f := range l.files {
		if !there[path] {
			if f.failed {
				b.c.Report(path, nil)
			}
			delete(l.files, path)
		}
	}
	if l.forced {
		l.forced = false
		b.mu.Lock()
		b.force = false
		b.mu.Unlock()
	}
	b.tell(true)
	return next
}

// file imports one file if it is new or changed and complete. open is true if another process is
// still writing it. An error is returned once per attempt.
func (l *looker) file(ctx context.Context, path string) (open bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a FIFO would block
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	key, err := fileKey(f)
	if key == "" || err != nil {
		return false, err
	}
	old := l.files[path]
	disk := l.inbox.c.Service.c.Root
	if old != nil && old.key == key && !old.due(disk) {
		return false, nil
	}
	if beingWritten(f) {
		return true, nil
	}
	if old == nil || old.key != key {
		old = &archiveFile{key: key, failed: old != nil && old.failed}
		l.files[path] = old
	}
	old.forced = old.forced || l.forced
	err = l.inbox.importOnce(ctx, f, key, old.forced)
	if ctx.Err() != nil {
		return false, nil
	}
	if now, kerr := fileKey(f); kerr == nil && now != key {
		delete(l.files, path) // it was changed during the import: import it again
		return true, nil
	}
	if err == nil {
		if old.failed {
			l.inbox.c.Report(path, nil)
		}
		*old = archiveFile{key: key}
		return false, nil
	}
	old.failed = true
	old.next, old.free = time.Time{}, 0
	if errors.Is(err, syscall.ENOSPC) {
		old.free = max(freeBytes(disk), 1)
	}
	if !errdefs.IsInvalidArgument(err) && !errdefs.IsNotFound(err) {
		old.next = time.Now().Add(min(maxRetry, lookEvery<<min(old.tries, 10)))
		old.tries++
	}
	return false, err
}

// importOnce imports an archive unless it was imported before.
func (b *Inbox) importOnce(ctx context.Context, f *os.File, key string, forced bool) error {
	if !forced {
		if done, err := b.c.Imports.Imported(ctx, key); done || err != nil {
			return err
		}
	}
	b.tell(false)
	var keys []string
	done := false
	refs, err := b.c.Service.importFile(ctx, f, func(sum digest.Digest) (bool, error) {
		keys = append(keys, sum.String())
		var err error
		if !forced {
			done, err = b.c.Imports.Imported(ctx, sum.String())
		}
		return done, err
	}, func(p cri.ImportProgress) {
		if p.Status == "done" {
			b.tell(false)
		}
	})
	if err != nil {
		return err
	}
	if done {
		return b.c.Imports.AddImport(ctx, key, f.Name())
	}
	b.c.Log.Info("imported images", "file", f.Name(), "images", refs)
	b.mu.Lock()
	clear(b.vain)
	b.mu.Unlock()
	keys = append(keys, key)
	for _, ref := range refs {
		keys = append(keys, imageKey(ref))
	}
	for _, k := range keys {
		if err := b.c.Imports.AddImport(ctx, k, f.Name()); err != nil {
			return err
		}
	}
	return nil
}
