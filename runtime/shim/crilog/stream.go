package crilog

import "bytes"

// A Stream is stdout or stderr of a container. It keeps the end of an unfinished
// line until the rest arrives, MaxLine is reached or it is closed. One goroutine
// may use it at a time.
type Stream struct {
	log      *Log
	name     string
	terminal bool // it ends a line with \r\n where the container wrote \n
	rest     []byte
}

// Stream makes a stream of the given name.
func (l *Log) Stream(name string) *Stream { return &Stream{log: l, name: name} }

// Terminal makes the stream of a container that has a terminal: its stdout and stderr are one.
func (l *Log) Terminal(name string) *Stream { return &Stream{log: l, name: name, terminal: true} }

// Write takes output as it comes. It always takes all; err is the first failure
// to write a line, and the lines that failed are lost.
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

// Close writes what is left of a line that had no end. It has the tag P, as
// containerd writes it: there is no newline that the container did not write.
func (s *Stream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	return s.flush(nil, true)
}

// flush writes what was kept and text as one line.
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
