package printable

import (
	"strings"
	"unicode"
)

// Line returns text as a single line for a terminal. It replaces line breaks and tabs by spaces. It replaces all other control
// characters, and the characters that change the direction of text, by question marks. It is not inlined, because it is called in many
// places.
//
//go:noinline
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || r == unicode.ReplacementChar || unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, text)
}

// Cut limits the length of text to the given number of bytes, and replaces each character that is not printable by U+FFFD. A shortened
// text ends with "...", which is not counted.
func Cut(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
