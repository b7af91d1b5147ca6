package cli

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// A lineWriter writes only complete lines, each with a prefix, so that several writers can share an output.
type lineWriter struct {
	w              io.Writer
	mu             *sync.Mutex // nil if the output is not shared
	prefix         string
	unfinishedLine []byte // unfinished line
}

// maxHeld is the maximum size of an unfinished line. If a line is longer, the rest is written as another line.
const maxHeld = 1 << 20

func (l *lineWriter) Write(b []byte) (int, error) {
	l.unfinishedLine = append(l.unfinishedLine, b...)
	var out []byte
	for {
		i := bytes.IndexByte(l.unfinishedLine, '\n')
		if i < 0 && len(l.unfinishedLine) < maxHeld {
			break
		}
		if i < 0 {
			i = len(l.unfinishedLine) - 1
		}
		out = append(append(out, l.prefix...), l.unfinishedLine[:i+1]...)
		l.unfinishedLine = l.unfinishedLine[i+1:]
	}
	if len(out) == 0 {
		return len(b), nil
	}
	if l.mu != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// writeUnfinished writes the last line if this line is unfinished.
func (l *lineWriter) writeUnfinished() error {
	if len(l.unfinishedLine) == 0 {
		return nil
	}
	_, err := l.Write([]byte{'\n'})
	return err
}

// A readError is an error of reading a response. An error of writing the output has another type.
type readError struct{ err error }

func (e readError) Error() string { return e.err.Error() }

type readErrorTagger struct{ r io.Reader }

func (t readErrorTagger) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = readError{err}
	}
	return n, err
}

// copyAnswer copies a response's body to the output.
func (t *tool) copyAnswer(w io.Writer, body io.Reader) error {
	_, err := io.Copy(w, readErrorTagger{body})
	var from readError
	if errors.As(err, &from) {
		return t.unreachableError(from.err)
	}
	return err
}
