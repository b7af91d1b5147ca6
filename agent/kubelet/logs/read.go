package logs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"time"
)

// Options choose what of a log is read; as v1.PodLogOptions.
type Options struct {
	Follow     bool      // wait for more until the container has ended
	Tail       int64     // only that many lines from the end; negative: all
	LimitBytes int64     // stop after that many bytes; 0: no limit
	Since      time.Time // only lines written since then
	Timestamps bool      // each line begins with its time
	Stream     string    // Stdout or Stderr; "": both
}

// A Flusher is a writer that passes on at once what it was given.
type Flusher interface{ Flush() error }

// While following, ended is asked when a writer closes a log file, soon after
// that (the runtime may learn of the end later than we do) and every settled.
const (
	settling = 20 * time.Millisecond
	settled  = 5 * time.Second
)

// Errors of Read, after everything before the place that they are about.
var (
	// ErrMissed means that files were removed between two that were read.
	ErrMissed = errors.New("the lines that follow were removed before they were read: the container writes faster than the log is read " +
		"(containerLogMaxSize and containerLogMaxFiles say how much of it is kept)")
	// ErrRemoved means that the log was removed although its container has not ended.
	ErrRemoved = errors.New("the log was removed while it was followed: what the container writes now is in no file")
)

// Read writes the log at path to w. With Follow it waits for more, and returns
// nil when ended says that the container has ended and all it wrote is
// delivered. Nothing is left out without an error: Read stops where lines are missing
// (ErrMissed). Behind a compressed file that is damaged it goes on, and reports that at the
// end. The file that is read stays open, so only the files after it can go before they are read.
//
// A w that is a Flusher is flushed whenever there is no more for now, and at the end;
// not after an error: a w that was neither written to nor flushed can still be told of one.
func Read(ctx context.Context, path string, o Options, ended func(context.Context) bool, w io.Writer) error {
	r := &reader{set: newSet(path), o: o, ended: ended, w: w, out: bufio.NewWriterSize(w, 16<<10), pause: settled}
	r.print = newPrinter(r.out, o)
	events := uint32(removals)
	if o.Follow {
		events = changes
	}
	watch, err := newWatch(r.set, events) // before the first look, so that nothing is missed
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
	watch *watch        // nil: the machine has no more; not while following
	cur   *file         // nil: the log does not exist yet
	pause time.Duration // until ended is asked again
	last  bool          // the container has ended: what is there now is all
	bad   error         // of the first compressed file that is damaged: a pod can make any number
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

// begin opens the file to begin with.
func (r *reader) begin() (err error) {
	if r.o.Tail >= 0 {
		r.cur, err = r.set.tail(r.o.Tail, r.o)
	} else {
		r.cur, err = r.set.oldest(r.o.Since)
	}
	return err
}

// drain prints the current file up to its present end.
func (r *reader) drain(ctx context.Context) error {
	if r.cur == nil {
		return nil
	}
	if err := r.cur.again(); err != nil {
		return err
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

// advance goes on to the next file if the writer has. errGone: the log is gone.
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
	// Since there is a next file, the writer is done with this one; but it may
	// have written to it after we came to its end.
	err = r.drain(ctx)
	if e, ok := r.cur.scan.rest(); ok && err == nil {
		err = r.print.entry(e)
	}
	r.bad = cmp.Or(r.bad, r.cur.bad)
	r.cur.close()
	r.cur = next
	return true, cmp.Or(err, missed)
}

// missed returns ErrMissed if files between the current and the next one, or, if that is nil,
// after the current one, were removed. A watch that has lost events leaves it open. The oldest
// file goes first, so nothing is missing as long as the current one is there.
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

// finish prints the unfinished last line, and returns what was wrong with files.
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

// wait delivers what is held and waits until there may be more.
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
		return nil // lines: the container lives
	}
	r.last = r.ended(ctx) // asked before the next drain, which so sees everything
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
