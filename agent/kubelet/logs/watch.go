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

// A dirWatch reports changes of a log and its rotated files. It records the names of removed files.
type dirWatch struct {
	f            *os.File
	base         string
	removedNames []string // names without .gz
	lostEvents   bool     // events were lost, so removedNames is incomplete
	writerClosed bool     // a writer closed a file
	pendingEvent bool     // catchUp has already read an event, so the next waitForChange returns at once
}

// The inotify events of a watch. If the log is not followed, a watch needs only the events in removals.
const (
	removals = unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	changes  = removals | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

func newDirWatch(s logFiles, events uint32) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s.dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, s.dir, events); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", s.dir, err)
	}
	return &dirWatch{f: os.NewFile(uintptr(fd), "inotify"), base: s.base}, nil
}

func (w *dirWatch) close() {
	if w != nil {
		w.f.Close()
	}
}

// waitForChange waits for a change, until d has passed or ctx ends. It reports whether a writer closed a file. If w is nil, it waits for d.
func (w *dirWatch) waitForChange(ctx context.Context, d time.Duration) (closed bool, err error) {
	if w == nil {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(d):
			return false, nil
		}
	}
	if err := w.f.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if !w.pendingEvent {
		var buf [4096]byte
		n, err := w.f.Read(buf[:])
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false, err
		}
		w.recordEvents(buf[:max(n, 0)])
	}
	closed = w.writerClosed
	w.writerClosed, w.pendingEvent = false, false
	return closed, nil
}

// recordEvents decodes the inotify events in b and records them.
func (w *dirWatch) recordEvents(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		end := min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])))
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
		b = b[end:]
		w.writerClosed = w.writerClosed || mask&unix.IN_CLOSE_WRITE != 0
		w.lostEvents = w.lostEvents || mask&unix.IN_Q_OVERFLOW != 0
		if mask&unix.IN_DELETE == 0 || name != w.base && !strings.HasPrefix(name, w.base+".") || strings.HasSuffix(name, ".tmp") {
			continue
		}
		if w.removedNames = append(w.removedNames, strings.TrimSuffix(name, ".gz")); len(w.removedNames) > maxRemoved {
			w.removedNames, w.lostEvents = nil, true
		}
	}
}

// maxRemoved is the maximum number of recorded names. A pod that mounts the directory can create and remove any number of
// files.
const maxRemoved = 1000

// catchUp records the pending events without waiting. It reports whether it succeeded.
func (w *dirWatch) catchUp() bool {
	if w == nil {
		return false
	}
	raw, err := w.f.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		for buf := make([]byte, 4096); ; w.pendingEvent = true {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil {
				return // no more events
			}
			w.recordEvents(buf[:n])
		}
	})
	return true
}

// hasMissed reports whether a log file was removed and does not exist in compressed form. It considers only the files
// between two others: the parameter name is the older of the two, and the parameter next is the newer one. If next is
// empty, there is no newer file yet. The second result is false if the watch has lost events. hasMissed deletes the
// recorded names of files that are older than next.
//
// The caller must find out the name of next after it has called catchUp. Otherwise a file that was rotated in between
// would count as missed.
func (w *dirWatch) hasMissed(name, next string, there func(string) bool) (missed, sure bool) {
	for _, gone := range w.removedNames {
		missed = missed || isOlder(w.base, name, gone) && (next == "" || isOlder(w.base, gone, next)) && !there(gone)
	}
	sure = !w.lostEvents
	if next != "" {
		w.removedNames = slices.DeleteFunc(w.removedNames, func(gone string) bool { return !isOlder(w.base, next, gone) })
		w.lostEvents = false
	}
	return missed, sure
}

// isOlder reports whether the log file a is older than the log file b. The file with the name base is the newest.
func isOlder(base, a, b string) bool { return a != base && (b == base || a < b) }
