package crilog

import "bytes"

// A Stream is the stdout or stderr of a container. It buffers an incomplete line until the line is
// complete, has MaxLine bytes, or the stream is closed. A Stream is not safe for concurrent use.
type Stream struct {
	log      *Log
	name     string
	terminal bool // lines end with \r\n, because the terminal adds \r
	rest     []byte
}

// Stream returns the stream with the given name, stdout or stderr.
func (l *Log) Stream(name string) *Stream { return &Stream{log: l, name: name} }

// Terminal returns the stream of a terminal, which combines stdout and stderr.
func (l *Log) Terminal(name string) *Stream { return &Stream{log: l, name: name, terminal: true} }

// Write writes output to the log, with few calls of write(2) for many lines. It always returns the length of p, and the first
// error. Lines that cannot be written are dropped.
func (s *Stream) Write(p []byte) (n int, err error) {
	n = len(p)
	w := s.log.begin()
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		text, rest, full := p, []byte(nil), false
		if i >= 0 {
			text, rest, full = p[:i], p[i+1:], true
		}
		if room := MaxLine - len(s.rest); len(text) > room {
			s.addLine(&w, text[:room], true)
			p = p[room:]
			continue
		}
		if full {
			s.addLine(&w, text, false)
		} else {
			s.rest = append(s.rest, text...)
		}
		p = rest
	}
	return n, w.end()
}

// Close writes an incomplete last line. It has the tag P, as in containerd, because the container
// did not write a newline.
func (s *Stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	w := s.log.begin()
	s.addLine(&w, nil, true)
	return w.end()
}

// addLine adds the buffered bytes followed by text to a batch, as one line.
func (s *Stream) addLine(w *batch, text []byte, partial bool) {
	if len(s.rest) > 0 {
		text = append(s.rest, text...)
		s.rest = nil
	}
	if s.terminal && !partial {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	w.add(s.name, partial, text)
}
