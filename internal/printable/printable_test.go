package printable_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/islet-edge/islet/internal/printable"
)

// hostile is a text with an escape sequence, a C1 control character, a character that reverses the text, and invalid UTF-8.
const hostile = "a\x1b[2J\u009b\u202eb\xff\nc\td"

func TestLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "ä web 1": "ä web 1", hostile: "a?[2J??b? c d", "\r\n": "? "} {
		if got := printable.Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "ä web 1": "ä web 1", "0123456789": "0123456789", "0123456789a": "0123456789...", "012345678ä": "012345678...",
		"\x1b\n\u202e": "\uFFFD\uFFFD\uFFFD"} {
		if got := printable.Cut(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add(hostile, 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most &= 0xff
		line, cut := printable.Line(text), printable.Cut(text, most)
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			t.Errorf("%q: %q", text, line)
		}
		if strings.ContainsFunc(cut, func(r rune) bool { return !unicode.IsPrint(r) && r != unicode.ReplacementChar }) ||
			utf8.RuneCountInString(cut) > most+3 {
			t.Errorf("%q, at most %d bytes: %q", text, most, cut)
		}
	})
}
