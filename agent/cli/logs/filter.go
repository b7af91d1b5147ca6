package logs

import (
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/islet-edge/islet/agent/cli/terminal"
)

// A logFilter writes lines of a log to a terminal. It keeps colours, and replaces every other control sequence, because
// a container could otherwise change the terminal's title, move the cursor or make the terminal send input.
type logFilter struct {
	w        io.Writer
	strict   bool   // lines have prefixes, so a carriage return must not overwrite a line, and each colour ends with its line
	held     []byte // the incomplete end of the last Write
	coloured bool
}

// maxSequence is the maximum length of a colour's control sequence.
const maxSequence = 40

// Write writes b. It holds back an incomplete character or sequence at the end until the next Write.
func (f *logFilter) Write(b []byte) (int, error) {
	in := append(f.held, b...)
	f.held = nil
	out := make([]byte, 0, len(in)+8)
	for len(in) > 0 {
		n, complete := f.next(in)
		if !complete {
			f.held = append([]byte(nil), in...)
			break
		}
		out = f.appendSafe(out, in[:n])
		in = in[n:]
	}
	if len(out) == 0 {
		return len(b), nil
	}
	if _, err := f.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// next returns the length of the character or colour with which the given bytes begin.
func (f *logFilter) next(in []byte) (n int, complete bool) {
	switch {
	case in[0] == '\x1b':
		return colourLength(in)
	case in[0] == '\r' && f.strict:
		if len(in) == 1 {
			return 0, false
		}
		if in[1] == '\n' {
			return 2, true
		}
		return 1, true
	case !utf8.FullRune(in):
		return 0, false
	}
	_, n = utf8.DecodeRune(in)
	return n, true
}

// colourLength returns the length of the control sequence for a colour (SGR) with which the given bytes begin. If they
// begin with another sequence, it returns the length of the escape character.
func colourLength(in []byte) (n int, complete bool) {
	for i, c := range in[1:min(len(in), maxSequence)] {
		switch {
		case i == 0 && c == '[', i > 0 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 0 && c == 'm':
			return i + 2, true
		default:
			return 1, true
		}
	}
	if len(in) >= maxSequence {
		return 1, true
	}
	return 0, false
}

// appendSafe appends one character or colour.
func (f *logFilter) appendSafe(out, c []byte) []byte {
	if f.strict && string(c) == "\r\n" {
		c = c[1:]
	}
	r, _ := utf8.DecodeRune(c)
	switch {
	case r == '\x1b' && len(c) > 1:
		f.coloured = string(c) != terminal.EndColour && string(c) != "\x1b[m"
	case r == '\n' && f.strict && f.coloured:
		f.coloured = false
		return append(append(out, terminal.EndColour...), c...)
	case r == '\n', r == '\t', r == '\r' && !f.strict:
	case unicode.IsControl(r), r == utf8.RuneError:
		return append(out, '?')
	}
	return append(out, c...)
}

// finish writes the held bytes, and ends a colour.
func (f *logFilter) finish() error {
	var out []byte
	for range f.held {
		out = append(out, '?')
	}
	f.held = nil
	if f.coloured {
		f.coloured = false
		out = append(out, terminal.EndColour...)
	}
	if len(out) == 0 {
		return nil
	}
	_, err := f.w.Write(out)
	return err
}
