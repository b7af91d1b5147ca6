package crilog

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/untrusted"
)

// MaxLine is the maximum number of bytes of output in one line of the log. A longer line of output
// is split into several lines of the log. The last one has the tag F, the others have the tag P.
const MaxLine = 16 << 10

// Options configures the rotation of a log.
type Options struct {
	MaxBytes int64 // size at which the log is rotated; 0 disables rotation
	MaxFiles int   // number of files to keep, including the current one
	// Interval is the minimum time between two rotations. It should be long enough for a reader
	// that follows the path to see every file. The log is rotated earlier only if it reaches HardMaxBytes
	// or the disk is short of space.
	Interval time.Duration
	// HardMaxBytes is the maximum size of the current file in bytes. The default is MaxBytes times
	// MaxFiles. The rotated files together have at most this default or HardMaxBytes bytes, whichever is
	// larger. The newest rotated file is never removed.
	HardMaxBytes int64
	Now          func() time.Time // nil means time.Now
	// DiskSpace returns the free and the total number of bytes of the disk of a log file. If it is nil,
	// statfs(2) is called.
	DiskSpace func(*os.File) (free, total int64)
	// Compress, if not nil, is called after each rotation of the log at path. It must compress each of the given rotated files to
	// <name>.gz. The names are relative to root, a directory that only the host's root user can change. They do not include files that a
	// reader may still follow. If the log was rotated before Interval had passed, there are no such files, because the compressed files
	// would soon be removed. Compress must not block.
	Compress func(path, root string, names []string)
}

// A Log is the log file of one container. Its streams may be written to concurrently.
type Log struct {
	path string
	// root is the part of the path that only the host's root user can change. rest is the remainder. It may contain symlinks that were
	// created by a pod that mounts the host's log directory.
	root, rest string
	o          Options

	mu   sync.Mutex
	f    *os.File
	size int64
	buf  []byte // buffer for a small batch, reused
	pace rotationPace
}

// Open opens the log for appending and creates its directory.
func Open(path string, o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.DiskSpace == nil {
		o.DiskSpace = diskSpace
	}
	o.HardMaxBytes = max(cmp.Or(o.HardMaxBytes, o.MaxBytes*int64(max(o.MaxFiles, 1))), o.MaxBytes)
	l := &Log{path: path, o: o, pace: rotationPace{last: o.Now()}}
	l.root, l.rest = splitPath(path)
	if err := l.makeDir(); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// splitPath splits the path of a log into root and rest. For
// <logs>/<namespace>_<name>_<uid>/<container>/<file>, root is <logs>. For other paths, root is the
// parent directory.
func splitPath(path string) (root, rest string) {
	root, rest = filepath.Split(filepath.Clean(path))
	container := filepath.Dir(root + "x")
	pod := filepath.Dir(container)
	if strings.Count(filepath.Base(pod), "_") >= 2 {
		return filepath.Dir(pod), filepath.Join(filepath.Base(pod), filepath.Base(container), rest)
	}
	return root, rest
}

func (l *Log) makeDir() error {
	if err := os.MkdirAll(l.root, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.MkdirAll(filepath.Dir(l.rest), 0o755)
}

func (l *Log) open() error { return l.openIn(l.root, l.rest) }

func (l *Log) openIn(root, name string) error {
	f, err := untrusted.OpenFile(root, name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open log %s: %w", l.path, err)
	}
	if l.f != nil {
		l.f.Close()
	}
	l.f, l.size = f, st.Size()
	return nil
}

// Reopen opens the path again, after another process has renamed the file.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return os.ErrClosed
	}
	l.pace.last = l.o.Now()
	return l.open()
}

// Close closes the file. Later writes to the streams of the log return an error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	l.pace.stop()
	return err
}
