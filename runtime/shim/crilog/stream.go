package crilog

import "bytes"

// A Stream is stdout or stderr of a container. It keeps an unfinished line until the rest arrives,
// MaxLine is reached or the stream is closed. Only one goroutine at a time may use it.
type Stream struct {
	log      *Log
	name     string
	terminal bool // lines end with \r\n where the container wrote \n
	rest     []byte
}

// Stream returns a stream with the given name.
func (l *Log) Stream(name string) *Stream { return &Stream{log: l, name: name} }

// Terminal returns the stream of a container with a terminal. The terminal combines stdout and
// stderr.
func (l *Log) Terminal(name string) *Stream { return &Stream{log: l, name: name, terminal: true} }

// Write writes output. n is always len(p). err is the first failure to write a line. Lines that
// cannot be written are lost.
func (s *Stream) Write(p []byte) (n int, err error) {
	n = len(p)
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		text, rest, full := p, []byte(nil), false
		if i >= 0 {
			text, rest, full = p[:i], p[i+1:], true
		}
		if room := MaxLine - len(s.rest); len(text) > room {
			note(s.flush(text[:room], true))
			p = p[room:]
			continue
		}
		if full {
			note(s.flush(text, false))
		} else {
			s.rest = append(s.rest, text...)
		}
		p = rest
	}
	return n, err
}

// Close writes an unfinished line. This line has the tag P, as in containerd, because the container
// did not write a newline.
func (s *Stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	return s.flush(nil, true)
}

// flush writes the bytes that were kept, followed by text, as one line.
func (s *Stream) flush(text []byte, partial bool) error {
	if len(s.rest) > 0 {
		text = append(s.rest, text...)
		s.rest = nil
	}
	if s.terminal && !partial {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	return s.log.line(s.name, partial, text)
}
