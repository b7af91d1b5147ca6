package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Grace limits the wait for other processes that have a pipe open. After the pipe's process has
// ended, Finish stops reading the pipe when it has been empty for this time.
const Grace = time.Second

// A LostError is returned if a part of the output was not delivered to the reader.
type LostError struct {
	Bytes int64 // at least this number of bytes was lost
	Err   error // the reason
}

// Error returns the number of bytes and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("the output is incomplete, at least %d bytes are missing: %v", e.Bytes, e.Err)
}

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// Outputs copies the outputs of one process. The zero value has no outputs. Its methods are not
// safe for concurrent use.
type Outputs struct {
	// BrokenPipe, if not nil, is called when a reader fails, in the goroutine that copies the
	// output. Set it if another program has the read end open, too, so that the process gets no
	// SIGPIPE when this end is closed. After the call, the rest of the output is read and
	// discarded, so that the process is not blocked. If BrokenPipe is nil, the read end is closed.
	BrokenPipe func()

	outputs  []*output
	children []*os.File
	copying  sync.WaitGroup
}

// Pipe adds a new pipe, whose content is copied to w. It returns the write end for the process.
// Start and Abort close the write end.
func (o *Outputs) Pipe(w io.Writer) (child *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	child = os.NewFile(uintptr(p[1]), "pipe")
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		child.Close()
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	o.Add(os.NewFile(uintptr(p[0]), "pipe"), w)
	o.children = append(o.children, child)
	return child, nil
}

// Add adds the read end of a pipe or a terminal, which must be non-blocking. Outputs closes it. If
// the writer w has a method Ended, this method is called after the last byte.
func (o *Outputs) Add(f *os.File, w io.Writer) {
	o.outputs = append(o.outputs, &output{file: f, reader: w})
}

// Start starts to copy the output and closes the write ends. The process must already have
// inherited them.
func (o *Outputs) Start() {
	o.closeChildren()
	for _, one := range o.outputs {
		o.copying.Go(func() { one.copy(o.BrokenPipe) })
	}
}

// Abort closes all files. Call it if the process did not start.
func (o *Outputs) Abort() {
	o.closeChildren()
	for _, one := range o.outputs {
		one.file.Close()
	}
}

func (o *Outputs) closeChildren() {
	for _, f := range o.children {
		f.Close() // a second Close only returns an error
	}
}

// Finish must be called when the process has ended. It returns nil when the output is complete, or a *LostError if output was lost. Finish
// continues to read the output of running child processes until the time limit has passed. A limit of 0 means no limit. Set a limit if the
// caller waits for the complete output. After ctx has ended, Finish no longer reads the output of child processes, and no longer waits for
// a slow reader.
func (o *Outputs) Finish(ctx context.Context, limit time.Duration) error {
	for _, one := range o.outputs {
		one.processEnded(limit)
	}
	stop := context.AfterFunc(ctx, func() {
		for _, one := range o.outputs {
			one.stopWaiting(ctx)
		}
	})
	defer stop()
	o.copying.Wait()
	var errs []error
	for _, one := range o.outputs {
		if one.lost != nil {
			errs = append(errs, one.lost)
		}
	}
	return errors.Join(errs...)
}

// buffers contains read buffers, so that an output without data needs no buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// An output is one pipe that is copied to a reader.
type output struct {
	file   *os.File
	reader io.Writer
	lost   *LostError // set by copy, read after copy has returned

	mu        sync.Mutex
	bytesRead int64 // number of bytes read from the pipe
	ended     bool
	total     int64     // value of bytesRead at which the process's own output is completely read; for a terminal an upper bound
	terminal  bool      // whether the file is a terminal; set with ended
	limit     time.Time // deadline for the output of child processes; zero means none
	stopped   error     // cause of the end of Finish's context
}

// terminalBuffer is the maximum number of bytes of a terminal's output that TIOCINQ does not count. TIOCINQ counts only the 4 KiB that the
// next read returns. The kernel keeps up to 8 KiB more for later reads (64 KiB before Linux 3.12).
const terminalBuffer = 64 << 10

// processEnded is called when the process has ended. It sets the field total and the deadlines.
func (o *output) processEnded(limit time.Duration) {
	raw, err := o.file.SyscallConn()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended, o.total = true, o.bytesRead
	if limit > 0 {
		o.limit = time.Now().Add(limit)
	}
	if err != nil {
		return // already closed
	}
	raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			o.total += int64(n)
		}
		if _, err := unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
			o.terminal = true
			o.total += terminalBuffer // readNow corrects the value
		}
	})
	o.file.SetReadDeadline(time.Now().Add(Grace))
}

// stopWaiting is called when the context of Finish has ended.
func (o *output) stopWaiting(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = context.Cause(ctx)
	o.file.SetReadDeadline(time.Now())
}

// copy copies the output until its end and closes the file. If the reader fails, copy calls broken
// and discards the rest of the output. If broken is nil, copy closes the file at once, so that the
// process gets SIGPIPE.
func (o *output) copy(broken func()) {
	defer o.file.Close()
	if e, ok := o.reader.(interface{ Ended() }); ok {
		defer e.Ended()
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return // closed
	}
	for o.prepareRead(raw) {
		buf, n := o.readOutput(raw)
		if n <= 0 {
			return
		}
		if o.lost != nil {
			o.lost.Bytes += int64(n)
			buffers.Put(buf)
			continue
		}
		sent, err := o.reader.Write((*buf)[:n])
		buffers.Put(buf)
		if err == nil {
			continue
		}
		o.lost = &LostError{Bytes: int64(n - sent), Err: err}
		if broken == nil {
			return
		}
		broken()
	}
}

// prepareRead reports whether to read more, and sets the deadline of the next read.
func (o *output) prepareRead(raw rawConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return true
	}
	switch delivered := o.bytesRead >= o.total; {
	case o.lost != nil && (delivered || o.stopped != nil): // the rest is from child processes, and the reader has failed
		return false
	case o.stopped != nil && !delivered:
		if n := o.unreadBytes(raw); n > 0 {
			o.lost = &LostError{Bytes: n, Err: o.stopped}
		}
		return false
	case o.stopped != nil, delivered && !o.limit.IsZero() && time.Now().After(o.limit):
		return false
	}
	o.file.SetReadDeadline(time.Now().Add(Grace))
	return true
}

// unreadBytes returns the size of the process's own output that was not read. It reads and discards the output of a terminal, because the
// kernel does not return its size.
func (o *output) unreadBytes(raw rawConn) int64 {
	if !o.terminal {
		return o.total - o.bytesRead
	}
	unread := int64(0)
	buf := make([]byte, 4<<10)
	for most := o.total - o.bytesRead; unread < most; {
		n := 0
		if err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }); err != nil || n <= 0 {
			break
		}
		unread += int64(n)
	}
	return unread
}

// readOutput waits for output. If n is zero or negative, the output has ended: all writers have
// closed the pipe, or the pipe has been empty for Grace after the end of the process.
func (o *output) readOutput(raw rawConn) (buf *[]byte, n int) {
	for {
		var errno error
		read := func(fd uintptr) bool {
			buf, n, errno = o.readNow(int(fd))
			return errno != unix.EAGAIN
		}
		err := raw.Read(read)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Output may have arrived before the deadline while this goroutine was not scheduled.
			raw.Control(func(fd uintptr) { read(fd) })
		} else if err != nil {
			return nil, 0 // closed
		}
		if errno != unix.EINTR {
			return buf, n // a terminal returns EIO at its end
		}
	}
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Control(func(fd uintptr)) error
}

// readNow reads without blocking. If there are no bytes, it returns the buffer to the pool.
func (o *output) readNow(fd int) (*[]byte, int, error) {
	buf := buffers.Get().(*[]byte)
	o.mu.Lock()
	n, err := unix.Read(fd, *buf)
	o.bytesRead += int64(max(n, 0))
	if o.ended && errors.Is(err, unix.EAGAIN) {
		o.total = min(o.total, o.bytesRead) // a terminal returns EAGAIN only if the kernel has no output of it
	}
	o.mu.Unlock()
	if n <= 0 {
		buffers.Put(buf)
		return nil, n, err
	}
	return buf, n, nil
}
