package logs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"time"
)

// Options select what is read, as in v1.PodLogOptions.
type Options struct {
	Follow     bool      // wait for more until the container has ended
	Tail       int64     // only the last lines; negative: all
	LimitBytes int64     // stop after that many bytes; 0: no limit
	Since      time.Time // only lines written since then
	Timestamps bool      // each line begins with its time
	Stream     string    // Stdout or Stderr; "": both
}

// A Flusher is a writer with a buffer.
type Flusher interface{ Flush() error }

// While following, ended is called shortly after a writer closed a log file (the runtime may notice
// the exit later than inotify), and at each interval settled.
const (
	settling = 20 * time.Millisecond
	settled  = 5 * time.Second
)

// Errors of Read. Everything before the missing lines has been written.
var (
	// ErrMissed: files were removed before they were read.
	ErrMissed = errors.New("the lines that follow were removed before they were read: the container writes faster than the log is read " +
		"(containerLogMaxSize and containerLogMaxFiles say how much of it is kept)")
	// ErrRemoved: the log was removed although its container is running.
	ErrRemoved = errors.New("the log was removed while it was followed: the container's further output is in no file")
)

// Read writes the log at path to w. Without Follow it ends where the newest file ended when Read
// opened it. With Follow it waits for more, and returns nil once ended reports the container's end
// and all output is written. It never skips lines silently: it stops where lines are missing
// (ErrMissed). It continues after a damaged compressed file and returns that error at the end. The
// current file stays open, so only later files can be removed before they are read.
//
// A Flusher is flushed whenever there is no more output for now, and at the end, but not after an
// error, so that the caller can still send an error status if nothing was written.
func Read(ctx context.Context, path string, o Options, ended func(context.Context) bool, w io.Writer) error {
	r := &reader{set: newSet(path), o: o, ended: ended, w: w, out: bufio.NewWriterSize(w, 16<<10), pause: settled}
	r.print = newPrinter(r.out, o)
	events := uint32(removals)
	if o.Follow {
		events = changes
	}
	watch, err := newWatch(r.set, events) // before the first read, so that no change is missed
	if err != nil && o.Follow {
		return err
	}
	defer watch.close()
	r.watch = watch
	if o.Follow {
		r.last = ended(ctx)
	}
	err = r.run(ctx)
	if err != nil && !errors.Is(err, errLimit) {
		return errors.Join(err, r.out.Flush())
	}
	return r.flush()
}

type reader struct {
	set   set
	o     Options
	ended func(context.Context) bool
	w     io.Writer
	out   *bufio.Writer
	print *printer
	watch *watch        // nil: inotify instances are exhausted, or not following
	cur   *file         // nil: the log does not exist yet
	pause time.Duration // until ended is called again
	last  bool          // the container has ended: the present output is complete
	bad   error         // of the first damaged file only, because a pod can make any number
}

func (r *reader) run(ctx context.Context) error {
	defer func() { r.cur.close() }()
	if err := r.begin(); err != nil {
		return err
	}
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if r.cur != nil && r.cur.newest && !r.o.Follow {
			return r.finish() // a container that writes faster than this reads must not keep it busy for ever
		}
		moved, err := r.advance(ctx)
		removed := errors.Is(err, errGone)
		if err != nil && !removed {
			return err
		}
		if moved {
			continue
		}
		if removed && r.o.Follow && !r.last && !r.ended(ctx) {
			return errors.Join(r.finish(), ErrRemoved)
		}
		if removed || !r.o.Follow || r.last {
			return r.finish()
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// begin opens the first file.
func (r *reader) begin() (err error) {
	if r.o.Tail >= 0 {
		r.cur, err = r.set.tail(r.o.Tail, r.o)
	} else {
		r.cur, err = r.set.oldest(r.o.Since)
	}
	return err
}

// drain prints the current file to its present end.
func (r *reader) drain(ctx context.Context) error {
	if r.cur == nil {
		return nil
	}
	if err := r.cur.again(); err != nil {
		return err
	}
	if r.cur.newest && !r.o.Follow {
		r.cur.stopAtSize()
	}
	for {
		e, err := r.cur.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.print.entry(e); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// advance switches to the next file if there is one. errGone: the log was removed.
func (r *reader) advance(ctx context.Context) (bool, error) {
	if r.cur == nil {
		if !r.o.Follow {
			return false, nil
		}
		first, err := r.set.oldest(r.o.Since)
		r.cur = first
		return first != nil, err
	}
	next, err := r.set.after(r.cur)
	if err != nil {
		return false, err
	}
	missed := r.missed(next)
	if next == nil {
		return false, missed
	}
	// The writer is done with this file, but may have written to it after the last drain.
	err = r.drain(ctx)
	if e, ok := r.cur.scan.rest(); ok && err == nil {
		err = r.print.entry(e)
	}
	r.bad = cmp.Or(r.bad, r.cur.bad)
	r.cur.close()
	r.cur = next
	return true, cmp.Or(err, missed)
}

// missed returns ErrMissed if files between the current file and next, or after the current one if
// next is nil, were removed. A watch that lost events gives no answer. The oldest file is removed
// first, so nothing is missing while the current one exists.
func (r *reader) missed(next *file) error {
	if r.cur.stem == r.set.base {
		return nil
	}
	known, name := r.watch.catchUp(), ""
	if next != nil {
		var err error
		if name, _, err = r.set.name(next); err != nil {
			return err
		}
	}
	missed, sure := false, false
	if known {
		missed, sure = r.watch.missed(r.cur.stem, name, r.set.has)
	}
	if missed || !sure && next != nil && !r.set.has(r.cur.stem) {
		return ErrMissed
	}
	return nil
}

// finish prints the unfinished last line, and returns the damage of files.
func (r *reader) finish() error {
	if r.cur == nil {
		return nil
	}
	r.bad = cmp.Or(r.bad, r.cur.bad)
	if e, ok := r.cur.scan.rest(); ok {
		if err := r.print.entry(e); err != nil {
			return err
		}
	}
	return cmp.Or(r.print.idle(), r.bad)
}

// wait flushes and waits for more output.
func (r *reader) wait(ctx context.Context) error {
	if err := errors.Join(r.print.idle(), r.flush()); err != nil {
		return err
	}
	asked := time.Now()
	closed, err := r.watch.wait(ctx, r.pause)
	if err != nil {
		return err
	}
	switch waited := time.Since(asked); {
	case closed:
		r.pause = settling
	case waited >= r.pause:
		r.pause = min(2*r.pause, settled)
	default:
		return nil // output: the container is running
	}
	r.last = r.ended(ctx) // before the next drain, which therefore sees everything
	return nil
}

func (r *reader) flush() error {
	if err := r.out.Flush(); err != nil {
		return err
	}
	if f, ok := r.w.(Flusher); ok {
		return f.Flush()
	}
	return nil
}
