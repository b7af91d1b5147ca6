package terminal

import (
	"io"

	"github.com/islet-edge/islet/agent/cli/command"
)

// Colour is the terminal colour of a word that needs attention.
type Colour string

// The colours, and the sequence that ends each of them.
const (
	Plain  Colour = ""
	Red    Colour = "\x1b[31m"
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"

	EndColour string = "\x1b[0m"
)

// InColour reports whether output to w has colours. The output has colours if w is a terminal that supports colours,
// unless NO_COLOR is set (https://no-color.org). If CLICOLOR_FORCE is set, any output has colours.
func InColour(t *command.Tool, w io.Writer) bool {
	switch {
	case t.Getenv("NO_COLOR") != "":
		return false
	case t.Getenv("CLICOLOR_FORCE") != "" && t.Getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return IsTerminal(w) && t.Getenv("TERM") != "dumb"
}

// Paint returns a word in the given colour, or without colour if the output has no colours.
func Paint(t *command.Tool, c Colour, s string) string {
	if c == Plain || !InColour(t, t.Out) {
		return s
	}
	return string(c) + s + EndColour
}

// ColourIfOn returns the given colour, or plain if the output has no colours.
func ColourIfOn(t *command.Tool, c Colour) Colour {
	if !InColour(t, t.Out) {
		return Plain
	}
	return c
}
