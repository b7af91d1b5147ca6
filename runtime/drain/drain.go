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

// Grace is the time for which a pipe must stay empty after the end of its process. After that,
// other processes that have the pipe open are ignored.
const Grace = time.Second

// A LostError reports that a part of a process's output was not delivered to its reader.
type LostError struct {
	Bytes int64 // at least so many bytes are lost
	Err   error // the reason
}

// Error returns the number of bytes and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("the output is incomplete, at least %d bytes are missing: %v", e.Bytes, e.Err)
}

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// Outputs are the outputs of one process. The zero value has no outputs. Only one goroutine may
// call its methods.
type Outputs struct {
	// BrokenPipe, if not nil, is called when a reader fails. The goroutine that copies the output
	// calls it. Use it for a process that would not notice that this end of its pipe is closed,
	// because another program has the read end open too. After the call the rest of the output is
	// read and discarded, so that the process is not blocked forever. If BrokenPipe is nil, the
	// read end is closed.
	BrokenPipe func()

	all      []*output
	children []*os.File
	moving   sync.WaitGroup
}

// Pipe creates a pipe whose content is copied to w. It returns the write end, which is for the
// process. Start closes this end.
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

// Add adds the read end of a pipe or terminal. It must be non-blocking, and Outputs closes it. If w
// has a method Ended, it is called after the last byte.
func (o *Outputs) Add(f *os.File, w io.Writer) { o.all = append(o.all, &output{file: f, to: w}) }

// Start starts to copy the output. The process must already have inherited its ends of the pipes.
func (o *Outputs) Start() {
	o.closeChildren()
	for _, one := range o.all {
		o.moving.Go(func() { one.move(o.BrokenPipe) })
	}
}

// Abort closes all files. Call it if the process did not start.
func (o *Outputs) Abort() {
	o.closeChildren()
	for _, one := range o.all {
		one.file.Close()
	}
}

func (o *Outputs) closeChildren() {
	for _, f := range o.children {
		f.Close() // closing twice is harmless
	}
}

// Finish must be called once the process has ended. It returns nil when the output is complete, or
// a *LostError if it cannot be. limit, if not 0, is how long Finish reads the output of children
// that are still running; use it for collected output. If ctx ends, Finish stops reading such
// output too, and does not wait any longer for a reader that has gone.
func (o *Outputs) Finish(ctx context.Context, limit time.Duration) error {
	for _, one := range o.all {
		one.end(limit)
	}
	stop := context.AfterFunc(ctx, func() {
		for _, one := range o.all {
			one.cut(ctx)
		}
	})
	defer stop()
	o.moving.Wait()
	var errs []error
	for _, one := range o.all {
		if one.lost != nil {
			errs = append(errs, one.lost)
		}
	}
	return errors.Join(errs...)
}

// buffers is a pool, so that an output that waits for its process needs no buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// An output is one pipe that is copied to a reader.
type output struct {
	file *os.File
	to   io.Writer
	lost *LostError // set by move, and read after move has returned

	mu    sync.Mutex
	taken int64 // number of bytes read from the pipe
	ended bool
	due   int64     // value of taken when all bytes are read that were in the pipe at the end of the process
	limit time.Time // deadline for the output of children; zero if there is none
	gone  error     // the cause why the caller stopped waiting
}

// end is called when the process has ended.
func (o *output) end(limit time.Duration) {
	raw, err := o.file.SyscallConn()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended, o.due = true, o.taken
	if limit > 0 {
		o.limit = time.Now().Add(limit)
	}
	if err != nil {
		return // the file is closed, because its end was read
	}
	raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			o.due += int64(n)
		}
	})
	o.file.SetReadDeadline(time.Now().Add(Grace))
}

// cut is called when the caller stops waiting.
func (o *output) cut(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = context.Cause(ctx)
	o.file.SetReadDeadline(time.Now())
}

// move copies the output until it ends or the reader fails. Then it closes the file, so that the
// process gets a broken pipe. If broken is not nil and the reader fails, it calls broken instead.
func (o *output) move(broken func()) {
	defer o.file.Close()
	if e, ok := o.to.(interface{ Ended() }); ok {
		defer e.Ended()
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return // closed
	}
	for o.prepareRead() {
		buf, n := o.readOutput(raw)
		if n <= 0 {
			return
		}
		if o.lost != nil {
			o.lost.Bytes += int64(n)
			buffers.Put(buf)
			continue
		}
		sent, err := o.to.Write((*buf)[:n])
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

// prepareRead reports whether there is more to read, and sets the deadline of the read.
func (o *output) prepareRead() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return true
	}
	switch delivered := o.taken >= o.due; {
	case o.lost != nil && (delivered || o.gone != nil): // the rest was written by children, and there is no reader
		return false
	case o.gone != nil && !delivered:
		o.lost = &LostError{Bytes: o.due - o.taken, Err: o.gone}
		return false
	case o.gone != nil, delivered && !o.limit.IsZero() && time.Now().After(o.limit):
		return false
	}
	o.file.SetReadDeadline(time.Now().Add(Grace))
	return true
}

// readOutput waits for output. n is not positive at the end of the output: no writer is left, or the pipe
// stays empty after the end of the process.
func (o *output) readOutput(raw rawConn) (buf *[]byte, n int) {
	for {
		var errno error
		read := func(fd uintptr) bool {
			buf, n, errno = o.readNow(int(fd))
			return errno != unix.EAGAIN
		}
		err := raw.Read(read)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline may have passed while this goroutine was not scheduled. Read what has
			// arrived.
			raw.Control(func(fd uintptr) { read(fd) })
		} else if err != nil {
			return nil, 0 // closed
		}
		if errno != unix.EINTR {
			return buf, n // at its end, a terminal returns EIO
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
	o.taken += int64(max(n, 0))
	o.mu.Unlock()
	if n <= 0 {
		buffers.Put(buf)
		return nil, n, err
	}
	return buf, n, nil
}
