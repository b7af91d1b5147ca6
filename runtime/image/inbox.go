package image

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/fsnotify/fsnotify"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/runtime/cri"
)

// Imports stores durably which archives were imported. A key is the digest of an archive's content,
// or has the prefix "file:" or "image:". The Inbox creates the keys.
type Imports interface {
	WasImported(ctx context.Context, key string) (bool, error)
	// AddImport stores a key durably before it returns. The key may already exist.
	AddImport(ctx context.Context, key, name string) error
}

// InboxConfig configures NewInbox.
type InboxConfig struct {
	// Dir is the directory of archives. It is created if it does not exist.
	Dir     string
	Service *Service
	Imports Imports
	// Report is called with the name of a file and the error of its import. The error is nil if a
	// later import succeeds or the file is removed. Report must not block. If Report is nil, errors
	// are logged.
	Report func(file string, err error)
	Log    *slog.Logger
}

// An Inbox imports the image archives in a directory, one after another, in the background. It
// reads a file as soon as no process has it open for writing. It ignores names that begin with a
// dot, so a program can also write to such a name and then rename the file.
//
// An archive is imported only once, even if it is copied again or the node restarts. The record of
// an import contains the digest of the content, and also the inode, size and times of the file, so
// that a restart does not read every archive again. If an image is removed while its archive
// remains, the image is not imported again automatically, because the removal may be intended. If a
// pod needs the image, WaitImage makes the Inbox import it again, and no other image of its archive.
type Inbox struct {
	c             InboxConfig
	rescanRequest chan struct{} // capacity 1; requests a scan for the images in wanted
	rereadRequest chan struct{} // capacity 1; see Reread

	mu        sync.Mutex
	stepEnded chan struct{}   // closed and replaced when an import or a scan has ended
	idle      bool            // false until the first scan has ended, and during an import
	wanted    map[string]bool // images for which the next scan searches in all archives
	notFound  map[string]bool // images that such a scan did not find; empty after a new archive
	force     bool            // whether a search was requested and has not ended
}

const (
	// settleDelay is the delay between a change of the directory and the scan. Further changes delay the
	// scan again, by at most retryOpen. retryOpen is also the delay until the next scan if a file
	// is still being written.
	settleDelay = 100 * time.Millisecond
	retryOpen   = time.Second
	// scanInterval is the interval between scans without an event. Some file systems send no events.
	scanInterval = time.Minute
	// maxRetry is the maximum delay before an import is tried again after an error that the archive
	// did not cause, such as a full disk.
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
	return &Inbox{
		c: c, rescanRequest: make(chan struct{}, 1), rereadRequest: make(chan struct{}, 1), stepEnded: make(chan struct{}),
		wanted: map[string]bool{}, notFound: map[string]bool{},
	}, nil
}

// WaitImage returns when the image exists, when no archive in the inbox can contain it any more, or
// when ctx ends. Before the first scan has ended, every archive may contain the image.
func (b *Inbox) WaitImage(ctx context.Context, ref string) error {
	name := ref
	if named, err := normalizeName(ref); err == nil {
		name = named.String()
	}
	for asked := false; ; {
		b.mu.Lock()
		turn, idle := b.stepEnded, b.idle && !b.force
		notFound := b.notFound[name]
		b.mu.Unlock()
		_, err := b.c.Service.Resolve(ctx, ref)
		if err == nil || !errors.Is(err, errdefs.ErrNotFound) {
			if notFound && err == nil {
				b.setNotFound(name, false)
			}
			return err
		}
		if idle {
			if asked {
				b.setNotFound(name, true)
			}
			if asked || notFound || !b.importedBefore(ctx, name) {
				return nil
			}
			asked = true
			b.requestImage(name)
			continue
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// importedBefore reports whether an archive that contains this image was imported before.
func (b *Inbox) importedBefore(ctx context.Context, name string) bool {
	imported, err := b.c.Imports.WasImported(ctx, imageKey(name))
	if err != nil {
		b.c.Log.Warn("the record of an earlier import of the image could not be read", "image", name, "error", err)
	}
	return imported
}

// requestImage makes the inbox search for an image in all archives.
func (b *Inbox) requestImage(name string) {
	b.mu.Lock()
	b.force = true
	b.wanted[name] = true
	b.mu.Unlock()
	select {
	case b.rescanRequest <- struct{}{}:
	default:
	}
}

func (b *Inbox) setNotFound(name string, notFound bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if notFound {
		b.notFound[name] = true
	} else {
		delete(b.notFound, name)
	}
}

// ImageKeyPrefix is the beginning of a key of Imports that records that an archive had an image. Other keys record imports of archives.
const ImageKeyPrefix = "image:"

func imageKey(ref string) string { return ImageKeyPrefix + ref }

// Reread makes Run import the archives again whose records were deleted from Imports.
func (b *Inbox) Reread() {
	select {
	case b.rereadRequest <- struct{}{}:
	default:
	}
}

// Run imports archives until ctx ends.
func (b *Inbox) Run(ctx context.Context) error {
	// A failure to read the inbox must not stop the agent. Each scan reports the error.
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
		b.c.Log.Warn("the image inbox cannot be watched: it is read at intervals", "dir", b.c.Dir, "every", scanInterval, "error", err)
	}
	l := &scanner{inbox: b, files: map[string]*archiveFile{}, wanted: map[string]bool{}}
	due := time.NewTimer(0)
	defer due.Stop()
	var deadline time.Time // deadline of a scan that events delay, or zero
	changed := func() {
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(retryOpen)
		}
		due.Reset(min(settleDelay, deadline.Sub(now)))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			changed()
		case <-failures: // for example an event overflow; the watcher stops if errors are not read
			changed()
		case <-b.rescanRequest:
			l.beginSearch()
			due.Reset(0)
		case <-b.rereadRequest:
			for _, f := range l.files {
				f.key = ""
			}
			due.Reset(0)
		case <-due.C:
			deadline = time.Time{}
			next := l.scanDirectory(ctx)
			if watcher != nil && next == scanInterval {
				_ = watcher.Add(b.c.Dir) // the directory may have been replaced; if this fails, the next scan reports it
			}
			if next == scanInterval {
				next = clock.UntilMultiple(next)
			}
			due.Reset(next)
		}
	}
}

// setIdle sets idle and wakes the callers of WaitImage.
func (b *Inbox) setIdle(idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = idle
	close(b.stepEnded)
	b.stepEnded = make(chan struct{})
}

// A scanner is the state of Run: the files that it has seen in the directory.
type scanner struct {
	inbox      *Inbox
	files      map[string]*archiveFile
	searching  bool            // whether the next scan searches for wanted in all archives
	wanted     map[string]bool // images that do not exist
	unreadable bool            // whether the directory could not be read
}

// beginSearch makes the next scan search for the requested images in all archives that may contain them.
func (l *scanner) beginSearch() {
	b := l.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	l.searching = true
	maps.Copy(l.wanted, b.wanted)
	clear(b.wanted)
}

// endSearch ends a search. If further images were requested during the search, another one follows.
func (l *scanner) endSearch() {
	b := l.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	l.searching = false
	clear(l.wanted)
	b.force = len(b.wanted) > 0
}

// mayContain reports whether a wanted image may be in an archive. An image is no longer wanted when it exists.
func (l *scanner) mayContain(ctx context.Context, f *archiveFile) bool {
	maps.DeleteFunc(l.wanted, func(name string, _ bool) bool {
		_, err := l.inbox.c.Service.Resolve(ctx, name)
		return err == nil
	})
	if f == nil || f.images == nil {
		return len(l.wanted) > 0
	}
	return slices.ContainsFunc(f.images, func(name string) bool { return l.wanted[name] })
}

// isWanted reports whether a pod has requested an image. This includes the images that the last search did not find: after an error, the
// import of an archive is tried again.
func (l *scanner) isWanted(name string) bool {
	b := l.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.wanted[name] || b.wanted[name] || b.notFound[name]
}

// scanDirectory imports new files in the directory and returns the delay until the next scan.
func (l *scanner) scanDirectory(ctx context.Context) (next time.Duration) {
	b := l.inbox
	next = scanInterval
	list, err := os.ReadDir(b.c.Dir)
	if (err != nil) != l.unreadable {
		l.unreadable = err != nil
		b.c.Report(b.c.Dir, err)
	}
	exists := map[string]bool{}
	for _, e := range list {
		path := filepath.Join(b.c.Dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		exists[path] = true
		open, err := l.importFile(ctx, path)
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
		if !exists[path] {
			if f.failed {
				b.c.Report(path, nil)
			}
			delete(l.files, path)
		}
	}
	if l.searching {
		l.endSearch()
	}
	b.setIdle(true)
	return next
}

// importFile imports a file that is new or changed, and complete. In a search, it also imports the wanted images of other files. It returns
// true if another process is still writing the file. If the import fails, it returns the error of this attempt.
func (l *scanner) importFile(ctx context.Context, path string) (open bool, err error) {
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
	search := l.searching && l.mayContain(ctx, old)
	if old != nil && old.key == key && !old.isDue(disk) && !search {
		return false, nil
	}
	if beingWritten(f) {
		return true, nil
	}
	if old == nil || old.key != key {
		old = &archiveFile{key: key, failed: old != nil && old.failed}
		l.files[path] = old
	}
	old.forced = old.forced || search
	images, err := l.importOnce(ctx, f, key, old.forced)
	if ctx.Err() != nil {
		return false, nil
	}
	if now, kerr := fileKey(f); kerr == nil && now != key {
		delete(l.files, path) // it was changed during the import, so import it again
		return true, nil
	}
	if err != nil {
		old.setFailed(err, disk)
		return false, err
	}
	if old.failed {
		l.inbox.c.Report(path, nil)
	}
	if images == nil {
		images = old.images // the file was not read
	}
	*old = archiveFile{key: key, images: images}
	return false, nil
}

// importOnce imports an archive. If it was imported before, only the wanted images are imported, and none if forced is false. It returns
// the names of the images in the archive, or nil if they are not known or too many.
func (l *scanner) importOnce(ctx context.Context, f *os.File, key string, forced bool) (images []string, err error) {
	b := l.inbox
	before, err := b.c.Imports.WasImported(ctx, key)
	if err != nil || before && !forced {
		return nil, err
	}
	b.setIdle(false)
	images = []string{}
	var only imageFilter
	keys := []string{key}
	refs, err := b.c.Service.importFile(ctx, f, func(sum digest.Digest) (skip bool, _ imageFilter, err error) {
		keys = append(keys, sum.String())
		if !before {
			before, err = b.c.Imports.WasImported(ctx, sum.String())
		}
		if before {
			only = func(name string) bool {
				images = append(images, name)
				return l.isWanted(name)
			}
		}
		return before && !forced, only, err
	}, func(p cri.ImportProgress) {
		if p.Status == "done" {
			b.setIdle(false)
		}
	})
	if err != nil {
		return nil, err
	}
	if !forced || !before { // a new archive, which may contain any image
		b.mu.Lock()
		clear(b.notFound)
		b.mu.Unlock()
	}
	if before && !forced {
		return nil, b.c.Imports.AddImport(ctx, key, f.Name())
	}
	if len(refs) > 0 {
		b.c.Log.Info("imported images", "file", f.Name(), "images", refs)
	}
	if !before {
		images = refs
	}
	for _, ref := range refs {
		keys = append(keys, imageKey(ref))
	}
	for _, k := range keys {
		if err := b.c.Imports.AddImport(ctx, k, f.Name()); err != nil {
			return nil, err
		}
	}
	if len(images) > maxKnownImages {
		return nil, nil
	}
	return images, nil
}
