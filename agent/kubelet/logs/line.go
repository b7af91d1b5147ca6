package logs

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// Names of the streams in a log line.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// maxLine is the size of the buffer for a raw line. Runtimes split lines at 16 KiB. A line that is longer than the buffer
// is returned in pieces.
const maxLine = 64 << 10

// An entry is one raw line of the log, or a piece of a long line.
type entry struct {
	time    time.Time
	stderr  bool
	partial bool   // the line continues in the next entry of the stream
	content []byte // without the newline; valid until the next read
}

// parseLine parses "2016-10-06T00:17:09.669794202Z stdout F content".
func parseLine(line []byte) (entry, bool) {
	stamp, rest, ok1 := bytes.Cut(line, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tags, content, _ := bytes.Cut(rest, []byte{' '}) // an empty line may lack the last space
	if !ok1 || !ok2 || len(stamp) > len("2006-01-02T15:04:05.999999999-07:00") {
		return entry{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return entry{}, false
	}
	e := entry{time: t, content: content}
	switch string(stream) {
	case Stdout:
	case Stderr:
		e.stderr = true
	default:
		return entry{}, false
	}
	switch tag, _, _ := bytes.Cut(tags, []byte{':'}); string(tag) {
	case "F":
	case "P":
		e.partial = true
	default:
		return entry{}, false
	}
	return e, true
}

// A scanner returns the entries of one file. At io.EOF it keeps an unfinished last line, and it continues when the file
// has grown.
type scanner struct {
	r          io.Reader
	buf        []byte
	start, end int
	longEntry  *entry // the first piece of a line that is longer than the buffer
	skipRest   bool   // the rest of the current line has to be skipped
	skipped    int64  // number of bytes that were skipped since the last entry
}

func newScanner(r io.Reader) *scanner { return &scanner{r: r, buf: make([]byte, maxLine)} }

// errNoLines is the error of a file that is not a log: it may have any apparent size without using the disk.
var errNoLines = errors.New("the file has too much data that is not in the log format")

// next returns the next entry. It skips lines that are not in CRI format, such as a block of zeros after a power loss. Beyond maxSearch
// skipped bytes it returns errNoLines.
func (s *scanner) next() (entry, error) {
	for {
		line, complete, err := s.readLine()
		if err != nil {
			return entry{}, err
		}
		if e, ok := s.piece(line, complete); ok {
			s.skipped = 0
			return e, nil
		}
		s.skipped += int64(len(line))
		if complete {
			s.skipped++ // the newline
		}
		if s.skipped > maxSearch {
			s.skipped = 0 // a later call searches on
			return entry{}, errNoLines
		}
	}
}

// unfinishedEntry returns the unfinished last line of a file that will not grow.
func (s *scanner) unfinishedEntry() (entry, bool) {
	if s.start == s.end {
		return entry{}, false
	}
	line := s.buf[s.start:s.end]
	s.start = s.end
	return s.piece(line, true)
}

func (s *scanner) piece(line []byte, complete bool) (entry, bool) {
	if s.skipRest {
		s.skipRest = !complete
		return entry{}, false
	}
	if s.longEntry != nil {
		e := *s.longEntry
		e.content = line
		if complete {
			s.longEntry = nil
		} else {
			e.partial = true
		}
		return e, true
	}
	e, ok := parseLine(line)
	switch {
	case complete:
		return e, ok
	case !ok:
		s.skipRest = true
		return entry{}, false
	}
	head := e
	s.longEntry = &head
	e.partial = true
	return e, true
}

// readLine returns the content up to the next newline. If the buffer is full and contains no newline, it returns the
// whole buffer, and the result complete is false.
func (s *scanner) readLine() (line []byte, complete bool, err error) {
	for searched := s.start; ; {
		if i := bytes.IndexByte(s.buf[searched:s.end], '\n'); i >= 0 {
			line = s.buf[s.start : searched+i]
			s.start = searched + i + 1
			return line, true, nil
		}
		if s.start > 0 {
			copy(s.buf, s.buf[s.start:s.end])
			s.end -= s.start
			s.start = 0
		}
		searched = s.end
		if s.end == len(s.buf) {
			s.start = s.end
			return s.buf, false, nil
		}
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if n == 0 && err != nil {
			return nil, false, err
		}
	}
}
