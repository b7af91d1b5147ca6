package doctor

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// unitDirs returns the directories of unit files. A file in an earlier directory replaces a file of the same name in a later one.
func unitDirs() []string {
	return []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
		"lib/systemd/system"}
}

// A unitFile contains those settings of a systemd unit that define the unit's command line.
type unitFile struct {
	command string   // the last ExecStart
	set     []string // Environment, in order
	files   []string // EnvironmentFile, in order
}

// readUnit reads a unit file and its drop-in files. The result is empty if there is no such unit.
func readUnit(host fs.FS, name string) (u unitFile) {
	parts := map[string]string{} // drop-in files by name
	for _, dir := range slices.Backward(unitDirs()) {
		found, _ := fs.Glob(host, dir+"/"+name+".d/*.conf")
		for _, file := range found {
			parts[path.Base(file)] = file
		}
	}
	for _, dir := range unitDirs() {
		if text := readHost(host, dir+"/"+name); text != "" {
			u.parse(text)
			break
		}
	}
	for _, base := range slices.Sorted(maps.Keys(parts)) {
		u.parse(readHost(host, parts[base]))
	}
	return u
}

func (u *unitFile) parse(text string) {
	for _, line := range logicalLines(text) {
		key, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ExecStart":
			u.command = strings.TrimLeft(value, "@-:+!")
		case "Environment":
			u.set = append(u.set, splitWords(value)...)
			if value == "" {
				u.set = nil
			}
		case "EnvironmentFile":
			u.files = append(u.files, strings.TrimPrefix(value, "-"))
			if value == "" {
				u.files = nil
			}
		}
	}
}

// environment returns the variables of the unit. Variables in an EnvironmentFile override variables
// in Environment.
func (u *unitFile) environment(host fs.FS) map[string]string {
	env := map[string]string{}
	for _, assignment := range u.set {
		if key, value, ok := strings.Cut(assignment, "="); ok {
			env[key] = value
		}
	}
	for _, file := range u.files {
		parseEnvironment(readHost(host, file), env)
	}
	return env
}

// parseEnvironment adds the assignments of an environment file of systemd, or of a simple shell script, to env.
func parseEnvironment(text string, env map[string]string) {
	for _, line := range logicalLines(text) {
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimPrefix(strings.TrimSpace(key), "export "); ok && !strings.ContainsAny(key, " \t[(") {
			env[key] = strings.Join(splitWords(value), " ")
		}
	}
}

// logicalLines joins continued lines, and omits empty lines and comments.
func logicalLines(text string) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != ';' {
			lines = append(lines, line)
		}
	}
	return lines
}

// splitWords splits a text at blanks that are not quoted, and removes the quotes.
func splitWords(text string) (words []string) {
	var word strings.Builder
	quote, started := rune(0), false
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(r)
		case r == '\\' && quote != '\'':
			escaped, started = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, started = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			if started {
				words = append(words, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words
}

// expand replaces variables in a command line as systemd does: $NAME as a whole word becomes the words of its value, and
// ${NAME} in a word becomes its value.
func expand(words []string, env map[string]string) (out []string) {
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") && !strings.HasPrefix(name, "$") {
			out = append(out, splitWords(env[name])...)
			continue
		}
		out = append(out, os.Expand(word, func(name string) string {
			if name == "$" {
				return "$"
			}
			return env[name]
		}))
	}
	return out
}
