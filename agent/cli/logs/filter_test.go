package logs

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// hostile is a log with control sequences that must not reach a terminal, and with a colour, which may.
const hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J \x1b[6n \u009b2J \xff \x1bP+q\x1b\\ \x1b[1;32mgreen\ttab\n"

func TestLogFilter(t *testing.T) {
	want := "\x1b[31mred\x1b[0m ?]0;title? ?[2J ?[6n ?2J ? ?P+q?\\ \x1b[1;32mgreen\ttab"
	for cut := range len(hostile) + 1 {
		for strict, end := range map[bool]string{false: "\n\x1b[0m", true: "\x1b[0m\n"} {
			var out bytes.Buffer
			f := &logFilter{w: &out, strict: strict}
			io.WriteString(f, hostile[:cut])
			io.WriteString(f, hostile[cut:])
			f.finish()
			if out.String() != want+end {
				t.Fatalf("cut at %d, strict %t: %q", cut, strict, out.String())
			}
		}
	}
	for in, out := range map[string][2]string{ // without and with prefixes
		"50%\r100%\n": {"50%\r100%\n", "50%?100%\n"}, "a\r\n": {"a\r\n", "a\n"}, "é世\n": {"é世\n", "é世\n"},
		"\x1b[" + strings.Repeat("1", 100) + "m": {"?[" + strings.Repeat("1", 100) + "m", "?[" + strings.Repeat("1", 100) + "m"}, "\x1b[3": {"???", "???"},
	} {
		for i, strict := range []bool{false, true} {
			var got bytes.Buffer
			f := &logFilter{w: &got, strict: strict}
			io.WriteString(f, in)
			f.finish()
			if got.String() != out[i] {
				t.Errorf("%q, strict %t: %q", in, strict, got.String())
			}
		}
	}
}

func FuzzLogFilter(f *testing.F) {
	f.Add([]byte(hostile), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut < 0 || cut > len(in) {
			return
		}
		var out bytes.Buffer
		w := &logFilter{w: &out, strict: true}
		w.Write(in[:cut])
		w.Write(in[cut:])
		w.finish()
		text := out.String()
		for {
			i := strings.IndexByte(text, '\x1b')
			if i < 0 {
				return
			}
			n, complete := colourLength([]byte(text[i:]))
			if n < 3 || !complete {
				t.Fatalf("%q", out.String())
			}
			text = text[i+n:]
		}
	})
}
