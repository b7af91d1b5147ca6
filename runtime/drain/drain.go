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

// Grace is how long a pipe must be empty after the end of its process until whoever
// still holds it is left behind.
const Grace = time.Second

// A LostError says that output of a process has not reached its reader.
type LostError struct {
	Bytes int64 // at least so many
	Err   error // why
}

// Error names the bytes and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("the output is incomplete, at least %d bytes are missing: %v", e.Bytes, e.Err)
}

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// Outputs are the outputs of one process. The zero value has none. Its methods are for
// one goroutine.
type Outputs struct {
	// BrokenPipe is called when a reader fails, from its goroutine, where closing the file
	// does not reach the process: somebody else holds the reading end of its pipe. The rest of
	// the output is read and discarded, so that the process does not wait for a reader for
	// ever. Without it the file is closed.
	BrokenPipe func()

	all      []*output
	children []*os.File
	moving   sync.WaitGroup
}

// Pipe makes a pipe whose content goes to w, and returns the end for the process, which
// Start closes.
func (o *Outputs) Pipe(w io.Writer) (child *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	child = os.NewFile(uintptr(p[1]), "pipe")
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		child.Close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	o.Add(os.NewFile(uintptr(p[0]), "pipe"), w)
	o.children = append(o.children, child)
	return child, nil
}

// Add adds the reading end of a pipe or terminal, which must not block and belongs to
// Outputs from here on. The method Ended of w, if it has one, is called after the last
// byte.
func (o *Outputs) Add(f *os.File, w io.Writer) { o.all = append(o.all, &output{file: f, to: w}) }

// Start begins to move output. The process has its ends of the pipes by now.
func (o *Outputs) Start() {
	o.closeChildren()
	for _, one := range o.all {
		o.moving.Go(func() { one.move(o.BrokenPipe) })
	}
}

// Abort closes all files after a process that did not start.
func (o *Outputs) Abort() {
	o.closeChildren()
	for _, one := range o.all {
		one.file.Close()
	}
}

func (o *Outputs) closeChildren() {
	for _, f := range o.children {
		f.Close() // closing again does no harm
	}
}

// Finish is called once the process has ended. It returns when the output is complete
// or, as a *LostError, cannot be. A limit other than 0 is how long children that go on
// writing are followed: for callers that collect output which nobody watches. The end
// of ctx is that limit, too, and ends the delivery to a reader that has gone.
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

// buffers are shared: an output that waits for its process holds none.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// An output is one pipe on its way to a reader.
type output struct {
	file *os.File
	to   io.Writer
	lost *LostError // set by move; read after its end

	mu    sync.Mutex
	taken int64 // bytes out of the pipe
	ended bool
	due   int64     // taken, once all that was in the pipe at the end of the process is
	limit time.Time // when children are no longer followed; zero: never
	gone  error     // the caller's end
}

// end says that the process has ended.
func (o *output) end(limit time.Duration) {
	raw, err := o.file.SyscallConn()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended, o.due = true, o.taken
	if limit > 0 {
		o.limit = time.Now().Add(limit)
	}
	if err != nil {
		return // it is closed: its end was seen
	}
	raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			o.due += int64(n)
		}
	})
	o.file.SetReadDeadline(time.Now().Add(Grace))
}

// cut says that the caller does not wait any longer.
func (o *output) cut(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = context.Cause(ctx)
	o.file.SetReadDeadline(time.Now())
}

// move delivers the output to its end. The reader's failure is the end too: the file
// is closed, and the process learns it as that of a broken pipe; or broken tells it.
func (o *output) move(broken func()) {
	defer o.file.Close()
	if e, ok := o.to.(interface{ Ended() }); ok {
		defer e.Ended()
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return // closed
	}
	for o.goOn() {
		buf, n := o.take(raw)
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

// goOn decides whether more is to be read, and bounds the wait for it.
func (o *output) goOn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return true
	}
	switch delivered := o.taken >= o.due; {
	case o.lost != nil && (delivered || o.gone != nil): // children write for nobody
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

// take waits for output. No bytes are its end: no writer is left or, after the end of
// the process, the pipe stays empty.
func (o *output) take(raw rawConn) (buf *[]byte, n int) {
	for {
		var errno error
		read := func(fd uintptr) bool {
			buf, n, errno = o.readNow(int(fd))
			return errno != unix.EAGAIN
		}
		err := raw.Read(read)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline may have passed while this goroutine did not run.
			raw.Control(func(fd uintptr) { read(fd) })
		} else if err != nil {
			return nil, 0 // closed
		}
		if errno != unix.EINTR {
			return buf, n // a terminal says EIO at its end
		}
	}
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Control(func(fd uintptr)) error
}

// readNow reads without waiting. Without bytes it holds no buffer.
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
