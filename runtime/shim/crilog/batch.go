package crilog

import (
	"bytes"
	"os"
	"sync"
	"time"
)

const (
	// maxBatch is the maximum size of a batch in bytes, unless a single line is longer. A read of 16 KiB of empty lines, which a container
	// can send at little cost, becomes 700 KB of log. With one call of write(2) for each line, it would occupy the shim much longer.
	maxBatch = 32 << 10
	// smallBatch is the size up to which a batch uses the buffer of its log, which thus has at most 1 KiB. Larger batches use a shared
	// buffer, because most logs are quiet.
	smallBatch = 512
	// lineHead is at least the size of a line without the name of the stream and the text.
	lineHead = len("2026-01-02T15:04:05.123456789Z ") + len(" F \n")
)

// largeBuffers contains buffers of maxBatch bytes. The garbage collector removes unused ones.
var largeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxBatch); return &b }}

// A batch collects lines of a log and writes them with few calls of write(2). The log is locked from begin to end.
type batch struct {
	log   *Log
	b     []byte
	large *[]byte   // the buffer of largeBuffers that contains b, or nil
	now   time.Time // time of the newest line
	err   error     // the first error
}

func (l *Log) begin() batch {
	l.mu.Lock()
	return batch{log: l, b: l.buf[:0]}
}

// end writes the rest of the lines, unlocks the log, and returns the first error.
func (w *batch) end() error {
	w.flush()
	if w.large != nil {
		largeBuffers.Put(w.large)
	} else {
		w.log.buf = w.b[:0]
	}
	w.log.mu.Unlock()
	return w.err
}

// add adds one line. It writes the earlier lines first if the line does not fit.
func (w *batch) add(stream string, partial bool, text []byte) {
	size := lineHead + len(stream) + len(text)
	if !w.fits(size) {
		w.flush()
	}
	if w.large == nil && len(w.b)+size > smallBatch {
		w.large = largeBuffers.Get().(*[]byte)
		w.log.buf = w.b[:0]
		w.b = append((*w.large)[:0], w.b...)
	}
	tag := byte('F')
	if partial {
		tag = 'P'
	}
	w.now = w.log.o.Now()
	w.b = w.now.UTC().AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, ' ')
	w.b = append(w.b, stream...)
	w.b = append(w.b, ' ', tag, ' ')
	w.b = append(w.b, text...)
	w.b = append(w.b, '\n')
}

// fits reports whether a line can be added. A batch ends where the file reaches its size, so that the log is rotated at the same line as
// without batches. A file that has already exceeded its size waits for its rotation, and is checked for each batch.
func (w *batch) fits(size int) bool {
	sum, most := len(w.b)+size, maxBatch
	if rotate := w.log.o.MaxBytes; rotate > 0 {
		most = int(min(rotate, maxBatch))
		if room := rotate - w.log.size; room >= int64(len(w.b)) && int64(sum) > room {
			return false
		}
	}
	return len(w.b) == 0 || sum <= most
}

// flush writes the collected lines. If the disk is full, it removes the part of the last line that was written.
func (w *batch) flush() {
	b, l := w.b, w.log
	w.b = b[:0]
	switch {
	case len(b) == 0:
		return
	case l.f == nil:
		w.note(os.ErrClosed)
		return
	case l.wasRemoved(w.now):
		w.note(l.restore(w.now))
	case l.isDue(w.now, int64(len(b))):
		w.note(l.rotate(w.now))
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	if part := int64(n - 1 - bytes.LastIndexByte(b[:n], '\n')); err != nil && part > 0 {
		if l.f.Truncate(l.size-part) == nil {
			l.size -= part
		}
	}
	w.note(err)
}

func (w *batch) note(err error) {
	if w.err == nil {
		w.err = err
	}
}
