package crilog

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/untrusted"
)

// MaxLine is how many bytes of output one log line holds; a longer line is
// written as several with the tag P, the last with F.
const MaxLine = 16 << 10

// Options say when a log is rotated.
type Options struct {
	MaxBytes int64 // size at which a log is due for rotation; 0: never
	MaxFiles int   // how many files are kept, with the current one
	// Interval is the least time between two rotations, so that a reader who follows the
	// path meets every file. A log that grows faster is rotated sooner only at Most, or when
	// the disk is short.
	Interval time.Duration
	// Most is how large the current file may become in bytes. 0: MaxBytes times MaxFiles, which
	// the rotated files may have together in any case. The newest of them is always kept.
	Most int64
	Now  func() time.Time // nil: time.Now
	// Free is how many bytes the disk of the log has free, and in all. nil: the log's own disk.
	Free func(*os.File) (free, total int64)
	// Compress, if any, is called at each rotation of the log at path. Names are the rotated
	// files that may be compressed to <name>.gz, below a root that nobody else can change: all
	// but those that a reader may still follow. There is none in a log that outruns Interval:
	// what is compressed then would be removed before long. It must not block.
	Compress func(path, root string, names []string)
}

// A Log is one container's log file. Its streams may be written to at once.
type Log struct {
	path string
	// What of the path nobody else can change, and the rest, in which a pod may have
	// put links: one that mounts the host's log directory.
	root, rest string
	o          Options

	mu   sync.Mutex
	f    *os.File
	size int64
	buf  []byte // of the line being written; kept between lines
	pace pace
}

// Open opens the log for appending and makes its directory.
func Open(path string, o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Free == nil {
		o.Free = freeOf
	}
	o.Most = max(cmp.Or(o.Most, o.MaxBytes*int64(max(o.MaxFiles, 1))), o.MaxBytes)
	l := &Log{path: path, o: o, pace: pace{last: o.Now()}}
	l.root, l.rest = split(path)
	if err := l.makeDir(); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// split takes <logs>/<namespace>_<name>_<uid>/<container>/<file> apart after the
// first, and any other path before its last element.
func split(path string) (root, rest string) {
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

// Reopen opens the path anew, after someone else has renamed the file.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return os.ErrClosed
	}
	l.pace.last = l.o.Now()
	return l.open()
}

// Close closes the file. Streams drop what is written later.
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

// line writes one line. A line that did not fit on the disk leaves no trace.
func (l *Log) line(stream string, partial bool, text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return os.ErrClosed
	}
	tag := byte('F')
	if partial {
		tag = 'P'
	}
	now := l.o.Now()
	b := now.UTC().AppendFormat(l.buf[:0], time.RFC3339Nano)
	b = append(b, ' ')
	b = append(b, stream...)
	b = append(b, ' ', tag, ' ')
	b = append(b, text...)
	b = append(b, '\n')
	if cap(b) <= 1<<10 {
		l.buf = b // long lines are rare: do not hold on to their memory
	}
	var rotated error
	switch {
	case l.removed(now):
		rotated = l.restore(now)
	case l.due(now, int64(len(b))):
		rotated = l.rotate(now)
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	if err != nil && n > 0 {
		if l.f.Truncate(l.size-int64(n)) == nil {
			l.size -= int64(n)
		}
	}
	return errors.Join(rotated, err)
}
