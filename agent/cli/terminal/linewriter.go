package terminal

import (
	"bytes"
	"io"
	"sync"
)

// A LineWriter writes only complete lines, each with a prefix, so that several writers can share an output.
type LineWriter struct {
	w              io.Writer
	mu             *sync.Mutex // nil if the output is not shared
	prefix         string
	unfinishedLine []byte // unfinished line
}

// NewLineWriter returns a LineWriter. The mutex is nil if the output is not shared.
func NewLineWriter(w io.Writer, mu *sync.Mutex, prefix string) *LineWriter {
	return &LineWriter{w: w, mu: mu, prefix: prefix}
}

// maxHeld is the maximum size of an unfinished line. If a line is longer, the rest is written as another line.
const maxHeld = 1 << 20

func (l *LineWriter) Write(b []byte) (int, error) {
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

// WriteUnfinished writes the last line if this line is unfinished.
func (l *LineWriter) WriteUnfinished() error {
	if len(l.unfinishedLine) == 0 {
		return nil
	}
	_, err := l.Write([]byte{'\n'})
	return err
}
