package logs

import (
	"errors"
	"io"
	"time"
)

// outputTimeFormat is the output format of times. It has a fixed width, as in the output of kubectl.
const outputTimeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// maxJoin is the maximum size of the buffer in which the pieces of a line are joined.
const maxJoin = 64 << 10

var errLimit = errors.New("byte limit reached")

// A printer joins entries into lines. It has a buffer for each stream, because a runtime may interleave the streams.
type printer struct {
	w          io.Writer
	o          Options
	out, err   unfinishedLine
	openLine   *unfinishedLine // the stream whose unfinished line has been written in part; may be nil
	leftBytes  int64           // how much of LimitBytes is left
	stampSpace []byte
}

// unfinishedLine is the unfinished line of one stream.
type unfinishedLine struct {
	buf     []byte
	time    time.Time
	started bool
	skip    bool
}

func newPrinter(w io.Writer, o Options) *printer {
	return &printer{w: w, o: o, leftBytes: o.LimitBytes}
}

// addEntry adds an entry to the output. It returns errLimit when LimitBytes is reached.
func (p *printer) addEntry(e entry) error {
	if e.stderr && p.o.Stream == Stdout || !e.stderr && p.o.Stream == Stderr {
		return nil
	}
	s := &p.out
	if e.stderr {
		s = &p.err
	}
	if !s.started {
		s.started, s.time, s.skip = true, e.time, e.time.Before(p.o.Since)
	}
	if !s.skip {
		s.buf = append(s.buf, e.content...)
	}
	if e.partial {
		if len(s.buf) < maxJoin {
			return nil
		}
		return p.write(s, false)
	}
	return p.write(s, true)
}

// flushPieces writes the buffered pieces. It is called when the next entry may take a long time to arrive.
func (p *printer) flushPieces() error {
	for _, s := range []*unfinishedLine{&p.out, &p.err} {
		if len(s.buf) > 0 {
			if err := p.write(s, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *printer) write(s *unfinishedLine, end bool) error {
	defer func() {
		s.buf = s.buf[:0]
		s.started = !end
	}()
	if s.skip {
		return nil
	}
	if p.openLine != nil && p.openLine != s { // end the unfinished line of the other stream
		p.openLine = nil
		if err := p.writeBytes([]byte{'\n'}); err != nil {
			return err
		}
	}
	if p.o.Timestamps && p.openLine != s {
		p.stampSpace = append(s.time.AppendFormat(p.stampSpace[:0], outputTimeFormat), ' ')
		if err := p.writeBytes(p.stampSpace); err != nil {
			return err
		}
	}
	p.openLine = s
	if end {
		p.openLine = nil
		s.buf = append(s.buf, '\n')
	}
	return p.writeBytes(s.buf)
}

func (p *printer) writeBytes(b []byte) error {
	if p.o.LimitBytes > 0 {
		if int64(len(b)) > p.leftBytes {
			b = b[:p.leftBytes]
		}
		p.leftBytes -= int64(len(b))
	}
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	if p.o.LimitBytes > 0 && p.leftBytes == 0 {
		return errLimit
	}
	return nil
}
