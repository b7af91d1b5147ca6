package logs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Options select the lines to read, as in v1.PodLogOptions.
type Options struct {
	Follow     bool      // wait for more lines until the container has ended
	Tail       int64     // number of last lines to read; negative means all
	Within     int64     // search the last lines only in this number of bytes at the end of the newest file; 0 means all files
	LimitBytes int64     // stop after this number of bytes; 0 means no limit
	Since      time.Time // read only lines that were written at this time or later
	Timestamps bool      // begin each line with its time
	Stream     string    // Stdout or Stderr; empty means both
}

// A Flusher is implemented by a writer with a buffer.
type Flusher interface{ Flush() error }

// While Read follows a log, it checks at the interval endCheckInterval whether the container has ended. It also
// checks this when a writer has closed a log file, after closeDelay. The delay is needed because the runtime may
// notice the exit later than inotify. Without inotify, for example because other programs use all of its instances
// (fs.inotify.max_user_instances), Read looks for output and for the end at the interval pollInterval.
const (
	pollInterval     = 500 * time.Millisecond
	closeDelay       = 20 * time.Millisecond
	endCheckInterval = 5 * time.Second
)

// Errors of Read. All lines before the missing ones have been written.
var (
	// ErrMissed means that files were removed before they were read.
	ErrMissed = errors.New("the lines that follow were removed before they were read: the container writes faster than the log is read " +
		"(containerLogMaxSize and containerLogMaxFiles say how much of it is kept)")
	// ErrRemoved means that the log was removed although its container is running.
	ErrRemoved = errors.New("the log was removed while it was followed: the container's further output is not stored")
)

// Read writes the log at path to w. Without Follow, it reads the newest file only up to its size when it was opened.
// With Follow, it waits for more output. It calls ended to check whether the container has ended. It then writes the
// remaining output and returns nil.
//
// Read never skips lines silently. It stops where lines are missing, and returns ErrMissed. If a compressed file is
// damaged, or a file has too much data that is not in the log format, it continues with the next file and returns the error in the end. The
// current file stays open, so only later files can be removed before they are read.
//
// If w is a Flusher, Read flushes it whenever no more output is available, and at the end. After an error
// Read does not flush it, so that the caller can still send an error status if nothing was written.
func Read(ctx context.Context, path string, o Options, ended func(context.Context) bool, w io.Writer) error {
	return readWatched(ctx, path, o, ended, w, newDirWatch)
}

func readWatched(
	ctx context.Context, path string, o Options, ended func(context.Context) bool, w io.Writer,
	newWatch func(files logFiles, events uint32) (*dirWatch, error),
) error {
	r := &reader{
		files: newLogFiles(ctx, path), o: o, hasEnded: ended, w: w, out: bufio.NewWriterSize(w, 16<<10), pause: endCheckInterval,
	}
	r.printer = newPrinter(r.out, o)
	events := uint32(removals)
	if o.Follow {
		events = changes
	}
	watch, err := newWatch(r.files, events) // before the first read, so that no change is missed
	if err != nil && o.Follow && !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	defer watch.close()
	r.watch = watch
	if o.Follow {
		r.isComplete, r.lastCheck = ended(ctx), time.Now()
	}
	err = r.run(ctx)
	if err != nil && !errors.Is(err, errLimit) {
		return errors.Join(err, r.out.Flush())
	}
	return r.flush()
}

type reader struct {
	files       logFiles
	o           Options
	hasEnded    func(context.Context) bool
	w           io.Writer
	out         *bufio.Writer
	printer     *printer
	watch       *dirWatch     // nil if inotify instances or watches are exhausted
	cur         *file         // nil if the log does not exist yet
	pause       time.Duration // time from lastCheck to the next check whether the container has ended
	lastCheck   time.Time
	isComplete  bool  // the container has ended, so the present output is complete
	firstDamage error // error of the first damaged file; later ones are dropped, because a pod can create any number
}

func (r *reader) run(ctx context.Context) error {
	defer func() { r.cur.close() }()
	if err := r.begin(); err != nil {
		return err
	}
	for {
		if err := r.printRest(ctx); err != nil {
			return err
		}
		if r.cur != nil && r.cur.newest && !r.o.Follow {
			return r.finishOutput() // do not read later files, because the container may write faster than Read reads
		}
		moved, err := r.openNextFile(ctx)
		removed := errors.Is(err, errGone)
		if err != nil && !removed {
			return err
		}
		if moved {
			continue
		}
		if removed {
			return r.finishRemoved(ctx)
		}
		if !r.o.Follow || r.isComplete {
			return r.finishOutput()
		}
		if err := r.waitForOutput(ctx); err != nil {
			return err
		}
	}
}

// finishRemoved finishes the output of a log that was removed. It returns ErrRemoved if the container is still running. The
// container may have written to the file until it ended, so the end is checked before the rest is printed.
func (r *reader) finishRemoved(ctx context.Context) (err error) {
	if r.o.Follow && !r.isComplete && !r.hasEnded(ctx) {
		err = ErrRemoved
	}
	if rest := r.printRest(ctx); rest != nil {
		return rest
	}
	return errors.Join(r.finishOutput(), err)
}

// begin opens the first file to read.
func (r *reader) begin() (err error) {
	if r.o.Tail >= 0 {
		r.cur, err = r.files.openTail(r.o.Tail, r.o)
	} else {
		r.cur, err = r.files.openOldest(r.o.Since)
	}
	return err
}

// printRest prints the rest of the current file, up to its present end.
func (r *reader) printRest(ctx context.Context) error {
	if r.cur == nil {
		return nil
	}
	if err := r.cur.seekUnfinished(); err != nil {
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
		if err := r.printer.addEntry(e); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// openNextFile switches to the next file, and reports whether there is one. It returns errGone if the log was removed.
func (r *reader) openNextFile(ctx context.Context) (bool, error) {
	if r.cur == nil {
		if !r.o.Follow {
			return false, nil
		}
		first, err := r.files.openOldest(r.o.Since)
		r.cur = first
		return first != nil, err
	}
	next, err := r.files.openNext(r.cur)
	if err != nil {
		return false, err
	}
	missed := r.checkMissed(next)
	if next == nil {
		return false, missed
	}
	// The writer no longer uses the current file, but may have written to it after the last drain.
	err = r.printRest(ctx)
	if e, ok := r.cur.scan.unfinishedEntry(); ok && err == nil {
		err = r.printer.addEntry(e)
	}
	r.firstDamage = cmp.Or(r.firstDamage, r.cur.damage)
	r.cur.close()
	r.cur = next
	return true, cmp.Or(err, missed)
}

// checkMissed returns ErrMissed if a file between the current file and the next one was removed. If next is nil, this
// applies to all files after the current one. If the watch has lost events, checkMissed returns ErrMissed only if
// there is a next file and the current file was removed. The oldest file is always removed first, so no later file is
// missing while the current one exists.
func (r *reader) checkMissed(next *file) error {
	if r.cur.stem == r.files.base {
		return nil
	}
	known, name := r.watch.catchUp(), ""
	if next != nil {
		var err error
		if name, _, err = r.files.nameOf(next); err != nil {
			return err
		}
	}
	missed, sure := false, false
	if known {
		missed, sure = r.watch.hasMissed(r.cur.stem, name, r.files.hasFile)
	}
	if missed || !sure && next != nil && !r.files.hasFile(r.cur.stem) {
		return ErrMissed
	}
	return nil
}

// finishOutput prints the unfinished last line. It returns the error of a damaged file.
func (r *reader) finishOutput() error {
	if r.cur == nil {
		return nil
	}
	r.firstDamage = cmp.Or(r.firstDamage, r.cur.damage)
	if e, ok := r.cur.scan.unfinishedEntry(); ok {
		if err := r.printer.addEntry(e); err != nil {
			return err
		}
	}
	return cmp.Or(r.printer.flushPieces(), r.firstDamage)
}

// waitForOutput flushes the output and waits for more.
func (r *reader) waitForOutput(ctx context.Context) error {
	if err := errors.Join(r.printer.flushPieces(), r.flush()); err != nil {
		return err
	}
	if r.watch == nil {
		r.pause = min(r.pause, pollInterval)
	}
	closed, err := r.watch.waitForChange(ctx, max(r.pause-time.Since(r.lastCheck), 0))
	if err != nil {
		return err
	}
	switch {
	case closed:
		r.pause = closeDelay
	case time.Since(r.lastCheck) >= r.pause:
		r.pause = min(2*r.pause, endCheckInterval)
	default:
		return nil // a file has changed. This may also be the log of the container's next attempt
	}
	r.isComplete = r.hasEnded(ctx) // called before the next drain, so that drain prints all the output
	r.lastCheck = time.Now()
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
