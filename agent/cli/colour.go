package cli

import (
	"bytes"
	"io"
	"strings"
)

// colour is a word that needs somebody's eye: how a terminal shows it.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"

	endColour string = "\x1b[0m"
)

// inColour says whether w is to have colours: a terminal that can, unless NO_COLOR
// says no (https://no-color.org); CLICOLOR_FORCE also for a pipe.
func (t *tool) inColour(w io.Writer) bool {
	switch {
	case t.Getenv("NO_COLOR") != "":
		return false
	case t.Getenv("CLICOLOR_FORCE") != "" && t.Getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return isTerminal(w) && t.Getenv("TERM") != "dumb"
}

// paint puts a word in its colour where there are colours.
func (t *tool) paint(c colour, s string) string {
	if c == plain || !t.inColour(t.out) {
		return s
	}
	return string(c) + s + endColour
}

// shade is the colour where there are colours.
func (t *tool) shade(c colour) colour {
	if !t.inColour(t.out) {
		return plain
	}
	return c
}

// statusColour is that of a pod's status.
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

// eventColour is that of an event's type, of a container's state.
func eventColour(word string) colour {
	if word == "Warning" {
		return yellow
	}
	return plain
}

// shouting is the colour of a word in capitals, which is bad news: NO, DOWN,
// EXPIRED, NOT READY.
func shouting(text string) colour {
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

// A severities writer colours the first word of a line of the doctor's.
type severities struct {
	w    io.Writer
	held []byte
}

func (s *severities) Write(b []byte) (int, error) {
	s.held = append(s.held, b...)
	var out []byte
	for {
		line, rest, whole := bytes.Cut(s.held, []byte("\n"))
		if !whole {
			break
		}
		s.held = rest
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
