package unitfile

import (
	"os"
	"slices"
	"strings"
)

// Blanks outside of a line.
const blanks = " \t\r"

// ParseEnvironment adds the assignments of an EnvironmentFile to env, as systemd reads them. A value without quotes is the rest of the line
// with its blanks, in which a backslash quotes the next character. A value in quotes may have several lines. A line whose name is not one
// of a variable is ignored. See systemd.exec(5).
func ParseEnvironment(text string, env map[string]string) {
	for text != "" {
		text = strings.TrimLeft(text, blanks+"\n")
		if text == "" {
			return
		}
		end := strings.IndexByte(text, '\n')
		equal := strings.IndexByte(text, '=')
		switch {
		case text[0] == '#' || text[0] == ';' || equal < 0 || end >= 0 && end < equal:
			_, text, _ = strings.Cut(text, "\n") // since systemd 254, also if it ends with a backslash
		default:
			name := strings.Trim(text[:equal], blanks)
			var value string
			value, text = valueOf(text[equal+1:])
			if isVariable(name) {
				env[name] = value
			}
		}
	}
}

// valueOf returns the value at the beginning of a text, and the text after it.
func valueOf(text string) (value, rest string) {
	var out []byte
	quote := byte(0)
	kept := 0        // the length of out without blanks at the end, which do not count
	started := false // there was a character of the value since the equals sign or the last quoted part
	for i := 0; i < len(text); i++ {
		c, literal := text[i], quote != 0
		switch {
		case isEscape(text[i:], quote):
			if i++; text[i] == '\n' {
				continue
			}
			c, literal = text[i], true
		case literal && c == quote:
			quote, started, kept = 0, false, len(out)
			continue
		case literal:
		case c == '\n':
			return string(out[:kept]), text[i+1:]
		case !started && (c == '"' || c == '\''):
			quote = c
			continue
		case isBlank(c) && !started:
			continue
		}
		out, started = append(out, c), true
		if literal || !isBlank(c) {
			kept = len(out)
		}
	}
	return string(out[:kept]), ""
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// isEscape reports whether a text begins with a backslash that quotes the next character. In double quotes, only some characters need one.
func isEscape(text string, quote byte) bool {
	return len(text) > 1 && text[0] == '\\' && (quote == 0 || quote == '"' && strings.IndexByte("\"\\`$\n", text[1]) >= 0)
}

// isVariable reports whether a variable may have a name. It is not inlined, because it is called twice.
//
//go:noinline
func isVariable(name string) bool {
	const letters = "_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return strings.Trim(name, letters+"0123456789") == "" && name != "" && strings.IndexByte(letters, name[0]) >= 0
}

// ParseShell adds the variables that a shell script sets to env, as far as they are known without running the script: assignments alone on
// a line, also after export. An assignment before a command sets nothing: A=--one --two runs the command --two. $NAME, ${NAME} and
// ${NAME:-DEFAULT} have the values in env. If a value would exceed the limit of all values, its variable stays as it is written: the agent
// rejects such an argument, so no flag gets lost silently.
func ParseShell(text string, env map[string]string) {
	room := MaxFile
	for _, command := range commands(text + "\n") {
		words := ShellWords(strings.ReplaceAll(command, "\\\n", ""))
		if len(words) > 0 && words[0] == "export" {
			words = words[1:]
		}
		if slices.ContainsFunc(words, isCommand) {
			continue
		}
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			env[name] = expand(value, env, &room)
		}
	}
}

// commands divides a script into its commands, without comments.
func commands(text string) (list []string) {
	quote, begin := byte(0), 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' && (i == begin || isBlank(text[i-1])):
			list = append(list, text[begin:i])
			i += strings.IndexByte(text[i:], '\n')
			begin = i + 1
		case strings.IndexByte("\n;&|", c) >= 0:
			list = append(list, text[begin:i])
			begin = i + 1
		}
	}
	return list
}

// isCommand reports whether a word of a script is not an assignment.
func isCommand(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return !ok || !isVariable(name)
}

// maxExpanded is the maximum length in bytes of a value in which variables are replaced.
const maxExpanded = 4 << 10

// expand replaces the variables in a value of a script. The parameter room is the number of bytes that the replaced variables of the script
// may still have.
func expand(value string, env map[string]string, room *int) string {
	if len(value) > maxExpanded { // the time of os.Expand may grow with the square of the length
		return value
	}
	return os.Expand(value, func(reference string) string {
		name, out, _ := strings.Cut(reference, ":-")
		if value := env[name]; value != "" {
			out = value
		}
		if len(out) > *room {
			return "${" + reference + "}"
		}
		*room -= len(out)
		return out
	})
}
