package logs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A watch tells of changes to the files in a directory.
type watch struct{ f *os.File }

func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	const events = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVE | unix.IN_DELETE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	if _, err := unix.InotifyAddWatch(fd, dir, events); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return &watch{os.NewFile(uintptr(fd), "inotify")}, nil
}

func (w *watch) close() { w.f.Close() }

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
	var buf [4096]byte
	n, err := w.f.Read(buf[:])
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		closed = closed || binary.NativeEndian.Uint32(b[4:])&unix.IN_CLOSE_WRITE != 0
		b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
	}
	return closed, nil
}
