package cli

import (
	"io"

	"github.com/islet-edge/islet/agent/cli/command"
)

// colour is the terminal colour of a word that needs attention.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"

	endColour string = "\x1b[0m"
)

// inColour reports whether output to w has colours. The output has colours if w is a terminal that supports colours,
// unless NO_COLOR is set (https://no-color.org). If CLICOLOR_FORCE is set, any output has colours.
func inColour(t *command.Tool, w io.Writer) bool {
	switch {
	case t.Getenv("NO_COLOR") != "":
		return false
	case t.Getenv("CLICOLOR_FORCE") != "" && t.Getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return isTerminal(w) && t.Getenv("TERM") != "dumb"
}

// paint returns a word in the given colour, or without colour if the output has no colours.
func paint(t *command.Tool, c colour, s string) string {
	if c == plain || !inColour(t, t.Out) {
		return s
	}
	return string(c) + s + endColour
}

// colourIfOn returns the given colour, or plain if the output has no colours.
func colourIfOn(t *command.Tool, c colour) colour {
	if !inColour(t, t.Out) {
		return plain
	}
	return c
}
