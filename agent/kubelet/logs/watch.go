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

// A watch reports changes of a log and its rotated files, and records removed files.
type watch struct {
	f       *os.File
	base    string
	removed []string // names without .gz
	blind   bool     // events were lost, so removed is incomplete
	closed  bool     // a writer closed a file
	early   bool     // missed consumed an event for wait
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

// wait blocks until a change, for d at most, or until ctx ends. It reports whether a writer closed
// a file.
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

// take records events.
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

// maxRemoved bounds the recorded names: a pod that mounts the directory may remove files of any
// name.
const maxRemoved = 1000

// catchUp records pending events. It reports whether it succeeded.
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
				return // no more events
			}
			w.take(buf[:n])
		}
	})
	return true
}

// missed reports whether a file newer than name and older than next was removed and does not exist
// in compressed form. It drops recorded names older than next. "": there is no next file. The names
// must be read after catchUp, else a file that was rotated since would count as missed. sure is
// false if events were lost.
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

// older reports whether the log file a is older than b. base is the newest.
func older(base, a, b string) bool { return a != base && (b == base || a < b) }
