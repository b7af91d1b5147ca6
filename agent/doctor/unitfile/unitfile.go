package unitfile

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// MaxFile is the maximum number of bytes that are read of a file.
const MaxFile = 256 << 10

// Text returns the first MaxFile bytes of a file of the host, or "" if the file cannot be read. The name may begin with a slash.
func Text(host fs.FS, name string) string {
	f, err := host.Open(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile))
	if err != nil {
		return ""
	}
	return string(data)
}

// Dirs returns the directories of unit files. A file in an earlier directory replaces a file of the same name in a later one.
func Dirs() []string {
	return []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
		"lib/systemd/system"}
}

// A Unit contains those settings of a systemd unit that define the unit's command line.
type Unit struct {
	Command string   // the last ExecStart
	set     []string // Environment, in order
	files   []string // EnvironmentFile, in order
}

// Read reads a unit file and its drop-in files. The result is empty if there is no such unit.
func Read(host fs.FS, name string) (u Unit) {
	parts := map[string]string{} // drop-in files by name
	for _, dir := range slices.Backward(Dirs()) {
		found, _ := fs.Glob(host, dir+"/"+name+".d/*.conf")
		for _, file := range found {
			parts[path.Base(file)] = file
		}
	}
	for _, dir := range Dirs() {
		if text := Text(host, dir+"/"+name); text != "" {
			u.parse(text, name)
			break
		}
	}
	for _, base := range slices.Sorted(maps.Keys(parts)) {
		u.parse(Text(host, parts[base]), name)
	}
	return u
}

// parse adds the settings of a file of the unit with the given name.
func (u *Unit) parse(text, name string) {
	short := strings.TrimSuffix(name, ".service")
	specifiers := strings.NewReplacer("%n", name, "%N", short, "%p", short)
	for _, line := range Lines(text) {
		key, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ExecStart":
			u.Command = strings.TrimLeft(value, "@-:+!")
		case "Environment":
			u.set = append(u.set, Words(value)...)
			if value == "" {
				u.set = nil
			}
		case "EnvironmentFile":
			u.files = append(u.files, specifiers.Replace(strings.TrimPrefix(value, "-")))
			if value == "" {
				u.files = nil
			}
		}
	}
}

// Environment returns the variables of the unit. Variables in an EnvironmentFile override variables
// in Environment.
func (u *Unit) Environment(host fs.FS) map[string]string {
	env := map[string]string{}
	for _, assignment := range u.set {
		if key, value, ok := strings.Cut(assignment, "="); ok {
			env[key] = value
		}
	}
	for _, file := range u.files {
		ParseEnvironment(Text(host, file), env)
	}
	return env
}

// Lines joins continued lines, and omits empty lines and comments.
func Lines(text string) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != ';' {
			lines = append(lines, line)
		}
	}
	return lines
}

// Words splits a text as systemd splits the command line of a unit and the value of a variable there, and removes the quotes. Blanks that
// are not quoted separate words, also line breaks: a value in an EnvironmentFile may have several lines.
func Words(text string) []string { return split(text, blanks+"\n") }

// ShellWords splits a text as a shell splits an expanded variable, and removes the quotes. A carriage return is part of a word.
func ShellWords(text string) []string { return split(text, " \t\n") }

// split splits a text at the separators that are not quoted, and removes the quotes.
func split(text, separators string) (words []string) {
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
		case quote == 0 && strings.ContainsRune(separators, r):
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

// Expand replaces variables in a command line as systemd does: $NAME as a whole word becomes the words of its value, and
// ${NAME} in a word becomes its value.
func Expand(words []string, env map[string]string) (out []string) {
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") && !strings.HasPrefix(name, "$") {
			out = append(out, Words(env[name])...)
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

// A Setting is an assignment in a section of a file.
type Setting struct {
	Section, Key, Value string
}

// Settings returns the assignments of a file in their order. The section has no brackets.
func Settings(text string) (list []Setting) {
	section := ""
	for _, line := range Lines(text) {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			list = append(list, Setting{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return list
}
