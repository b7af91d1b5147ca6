package cli

import (
	"bytes"
	"io"
	"strings"
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
func (t *tool) inColour(w io.Writer) bool {
	switch {
	case t.Getenv("NO_COLOR") != "":
		return false
	case t.Getenv("CLICOLOR_FORCE") != "" && t.Getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return isTerminal(w) && t.Getenv("TERM") != "dumb"
}

// paint returns a word in the given colour, or without colour if the output has no colours.
func (t *tool) paint(c colour, s string) string {
	if c == plain || !t.inColour(t.out) {
		return s
	}
	return string(c) + s + endColour
}

// colourIfOn returns the given colour, or plain if the output has no colours.
func (t *tool) colourIfOn(c colour) colour {
	if !t.inColour(t.out) {
		return plain
	}
	return c
}

// statusColour returns the colour of a pod's status.
func statusColour(status string) colour {
	switch {
	case status == "Running" || status == "Completed" || status == "Succeeded":
		return green
	case status == "Pending" || status == "Terminating" || status == "ContainerCreating" ||
		status == "PodInitializing" || status == "NotReady" ||
		strings.HasPrefix(status, "Init:") && strings.Contains(status, "/"):
		return yellow
	}
	return red
}

// eventColour returns the colour of an event's type or a container's state.
func eventColour(word string) colour {
	if word == "Warning" {
		return yellow
	}
	return plain
}

// alarmColour returns red for a text that reports a problem in capitals: NO, DOWN, EXPIRED, NOT READY.
func alarmColour(text string) colour {
	for _, word := range []string{"DOWN", "EXPIRED", "NOT READY"} {
		if strings.Contains(text, word) {
			return red
		}
	}
	if text == "NO" {
		return red
	}
	return plain
}

// A severityWriter colours the severity in each line of doctor's output. The severity is the first
// word of the line.
type severityWriter struct {
	w              io.Writer
	unfinishedLine []byte
}

func (s *severityWriter) Write(b []byte) (int, error) {
	s.unfinishedLine = append(s.unfinishedLine, b...)
	var out []byte
	for {
		line, rest, whole := bytes.Cut(s.unfinishedLine, []byte("\n"))
		if !whole {
			break
		}
		s.unfinishedLine = rest
		word, text, _ := strings.Cut(string(line), " ")
		if c := map[string]colour{"error": red, "warning": yellow, "ok": green}[word]; c != plain {
			word = string(c) + word + endColour
		}
		if text != "" {
			word += " " + text
		}
		out = append(append(out, word...), '\n')
	}
	if len(out) > 0 {
		if _, err := s.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
