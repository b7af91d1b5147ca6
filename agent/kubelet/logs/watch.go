package logs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A watch tells of changes to a log and its rotated files, and keeps which were removed while nobody
// looked.
type watch struct {
	f       *os.File
	base    string
	removed []string // names without .gz
	blind   bool     // removed is not all
	closed  bool     // a writer closed a file
	early   bool     // missed has taken an event that wait is for
}

// Events of a watch.
const (
	removals = unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	changes  = removals | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

func newWatch(s set, events uint32) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s.dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, s.dir, events); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", s.dir, err)
	}
	return &watch{f: os.NewFile(uintptr(fd), "inotify"), base: s.base}, nil
}

func (w *watch) close() {
	if w != nil {
		w.f.Close()
	}
}

// wait blocks until something changed, for d at most, or until ctx ends. It
// reports whether a writer closed a file.
func (w *watch) wait(ctx context.Context, d time.Duration) (closed bool, err error) {
	if err := w.f.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if !w.early {
		var buf [4096]byte
		n, err := w.f.Read(buf[:])
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false, err
		}
		w.take(buf[:max(n, 0)])
	}
	closed = w.closed
	w.closed, w.early = false, false
	return closed, nil
}

// take notes events.
func (w *watch) take(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		end := min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])))
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
		b = b[end:]
		w.closed = w.closed || mask&unix.IN_CLOSE_WRITE != 0
		w.blind = w.blind || mask&unix.IN_Q_OVERFLOW != 0
		if mask&unix.IN_DELETE == 0 || name != w.base && !strings.HasPrefix(name, w.base+".") || strings.HasSuffix(name, ".tmp") {
			continue
		}
		if w.removed = append(w.removed, strings.TrimSuffix(name, ".gz")); len(w.removed) > maxRemoved {
			w.removed, w.blind = nil, true
		}
	}
}

// maxRemoved bounds the names that are held: a pod that mounts the directory may remove files
// of any name.
const maxRemoved = 1000

// catchUp notes the events that are there. It reports whether it could.
func (w *watch) catchUp() bool {
	if w == nil {
		return false
	}
	raw, err := w.f.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		for buf := make([]byte, 4096); ; w.early = true {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil {
				return // there are no more
			}
			w.take(buf[:n])
		}
	})
	return true
}

// missed reports whether a file was removed, and is not there compressed, that is newer than the one
// of that name and older than next, and forgets what is older than next. "": there is no next one.
// The names are to be asked for after catchUp: a file that was rotated since would be taken for one
// in between. sure is false if events were lost.
func (w *watch) missed(name, next string, there func(string) bool) (missed, sure bool) {
	for _, gone := range w.removed {
		missed = missed || older(w.base, name, gone) && (next == "" || older(w.base, gone, next)) && !there(gone)
	}
	sure = !w.blind
	if next != "" {
		w.removed = slices.DeleteFunc(w.removed, func(gone string) bool { return !older(w.base, next, gone) })
		w.blind = false
	}
	return missed, sure
}

// older reports whether the file a of a log is older than b. base is the newest.
func older(base, a, b string) bool { return a != base && (b == base || a < b) }
