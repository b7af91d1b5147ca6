package page

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A markup builds an HTML document. It escapes text and the values of attributes. It writes only constants without
// escaping.
type markup struct{ b []byte }

// A literal is HTML, or the name of an element or attribute. The package converts no value to this type, so every literal is a
// constant.
type literal string

// raw adds HTML.
func (m *markup) raw(html literal) { m.b = append(m.b, html...) }

// text adds text.
func (m *markup) text(parts ...string) {
	for _, s := range parts {
		m.b = appendEscaped(m.b, s)
	}
}

// An attribute is the name and the value of an attribute. The page sets no attribute that runs a script or has a style.
type attribute struct {
	name  literal
	value string
}

// open adds the start of an element. It omits attributes without a name and attributes without a value.
func (m *markup) open(element literal, attributes ...attribute) {
	m.raw("<")
	m.raw(element)
	for _, a := range attributes {
		if a.name == "" || a.value == "" {
			continue
		}
		m.raw(" ")
		m.raw(a.name)
		m.raw(`="`)
		m.text(a.value)
		m.raw(`"`)
	}
	m.raw(">")
}

// end adds the end of an element.
func (m *markup) end(element literal) {
	m.raw("</")
	m.raw(element)
	m.raw(">")
}

// element adds an element that contains only text.
func (m *markup) element(name literal, text string, attributes ...attribute) {
	m.open(name, attributes...)
	m.text(text)
	m.end(name)
}

func class(name string) attribute { return attribute{"class", name} }

// href returns the attribute of a link. The callers pass relative addresses and http addresses that they have built.
func href(address string) attribute { return attribute{"href", address} }

// appendEscaped appends a text in such a way that a browser shows each character of it. It escapes the special characters of
// HTML. It replaces control characters, and characters that reorder the text around them.
func appendEscaped(b []byte, s string) []byte {
	for _, r := range s {
		switch {
		case r == '&':
			b = append(b, "&amp;"...)
		case r == '<':
			b = append(b, "&lt;"...)
		case r == '>':
			b = append(b, "&gt;"...)
		case r == '"':
			b = append(b, "&#34;"...)
		case r == '\'':
			b = append(b, "&#39;"...)
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || reorders(r)):
			b = utf8.AppendRune(b, utf8.RuneError)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// reorders reports whether a character changes the direction of the text after it.
func reorders(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}

// plain returns the text without the escape sequences for terminals, such as colours.
func plain(s string) string {
	if !strings.Contains(s, "\x1b[") {
		return s
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		i := 0
		for i < len(after) && (after[i] >= 0x20 && after[i] <= 0x3f) { // parameters
			i++
		}
		if i < len(after) && after[i] >= 0x40 && after[i] <= 0x7e { // the end of the sequence
			i++
		}
		s = after[i:]
	}
}

// cut shortens a long text. The parameter most is the maximum number of characters that remain.
func cut(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}
