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

// Imports remembers over restarts what was imported. A key is the digest of an
// archive's content, or begins with "file:" or "image:"; the Inbox makes them.
type Imports interface {
	Imported(ctx context.Context, key string) (bool, error)
	// AddImport is durable when it returns. Adding again is success.
	AddImport(ctx context.Context, key, name string) error
}

// InboxConfig is what an Inbox needs.
type InboxConfig struct {
	// Dir is the directory of archives. It is made when missing.
	Dir     string
	Service *Service
	Imports Imports
	// Report is called with a file's name and why it could not be imported, and
	// with nil once it could or is gone. It must not block. Nil: errors are logged.
	Report func(file string, err error)
	Log    *slog.Logger
}

// Inbox imports the image archives that lie or appear in a directory, one after
// the other, in the background. It reads a file when nobody has it open for
// writing any more; names that begin with a dot are left alone, so a writer can
// also rename to the final name.
//
// An archive is imported once, however often it is copied here and the node
// restarts: what was imported is remembered by content, and by inode, size and
// times so that not every start reads every archive. An image that is removed
// while its archive stays is not imported again by itself, for someone wanted
// it gone; but as soon as a pod needs it, WaitImage has it imported again.
type Inbox struct {
	c     InboxConfig
	again chan struct{} // capacity 1: look now, forgetting what was imported

	mu    sync.Mutex
	turn  chan struct{}   // closed and replaced when an import or a look has ended
	idle  bool            // nothing to import was left at the last look
	vain  map[string]bool // images that a forced look did not bring
	force bool
}

const (
	// settle is how long after a change the directory is looked at, and retryOpen
	// how long after it was seen that a file is still being written. More changes put a look
	// off, by retryOpen at most.
	settle    = 100 * time.Millisecond
	retryOpen = time.Second
	// lookEvery is for directories whose changes nobody tells.
	lookEvery = time.Minute
	// maxRetry bounds the time between attempts to import after an error that is
	// not the archive's, such as a full disk.
	maxRetry = time.Hour
)

// NewInbox makes an Inbox. Run starts it.
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
				c.Log.Warn("image archive not imported", "file", file, "error", err)
			}
		}
	}
	return &Inbox{c: c, again: make(chan struct{}, 1), turn: make(chan struct{}), vain: map[string]bool{}}, nil
}

// WaitImage returns when the image is here, when no archive in the inbox can
// bring it any more, or when ctx ends. Before the first look is over every
// archive may bring it.
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
			if asked || vain || !b.once(ctx, ref) {
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

// once says whether an archive brought this image before.
func (b *Inbox) once(ctx context.Context, ref string) bool {
	named, err := normalize(ref)
	if err != nil {
		return false
	}
	yes, err := b.c.Imports.Imported(ctx, imageKey(named.String()))
	if err != nil {
		b.c.Log.Warn("whether an archive had the image is not known", "image", ref, "error", err)
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

// Run imports until ctx ends.
func (b *Inbox) Run(ctx context.Context) error {
	// An inbox that cannot be read takes nothing else along: each look reports it.
	if err := os.MkdirAll(b.c.Dir, 0o700); err != nil {
		b.c.Log.Warn("the image inbox cannot be made", "dir", b.c.Dir, "error", err)
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
		b.c.Log.Warn("changes of the image inbox are seen late", "dir", b.c.Dir, "every", lookEvery, "error", err)
	}
	l := &looker{inbox: b, files: map[string]*archiveFile{}}
	due := time.NewTimer(0)
	defer due.Stop()
	var late time.Time // when the look begins that events put off; zero: none is
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
		case <-failures: // such as more events than could be told; unread, it was the last news
			changed()
		case <-b.again:
			l.forget()
			due.Reset(0)
		case <-due.C:
			late = time.Time{}
			next := l.look(ctx)
			if watcher != nil && next == lookEvery {
				_ = watcher.Add(b.c.Dir) // it may have been replaced; if that fails the next look tells
			}
			due.Reset(next)
		}
	}
}

// tell wakes those who wait for images.
func (b *Inbox) tell(idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = idle
	close(b.turn)
	b.turn = make(chan struct{})
}

// looker is what Run knows of the files in the directory.
type looker struct {
	inbox  *Inbox
	files  map[string]*archiveFile
	forced bool // what was imported does not count
	blind  bool // the directory cannot be read
}

// forget makes the next look import everything once more.
func (l *looker) forget() {
	l.forced = true
	clear(l.files)
}

// look imports what is new in the directory and says when to look again.
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

// file imports one file if it is new and whole. open says that someone still
// writes it. The error is new: it is told once for each attempt.
func (l *looker) file(ctx context.Context, path string) (open bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would block
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
		delete(l.files, path) // it changed meanwhile: whatever came of it, again
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

// importOnce imports an archive unless that was done before.
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
