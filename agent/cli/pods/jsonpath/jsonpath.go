package jsonpath

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Path is a parsed JSONPath expression, such as {.status.containerStatuses[0].ready}. It supports fields, quoted
// fields, indexes, wildcards and filters that compare one field with a literal. It rejects the other features of
// Kubernetes' JSONPath: ranges, slices, unions and recursive descent.
type Path []pathStep

// A pathStep selects values of an object or a list.
type pathStep struct {
	field  string // if not empty, selects this field of an object
	index  int    // index in a list, from the end if negative; not used if another member is set
	all    bool   // selects all values of an object or a list
	filter *pathFilter
}

// A pathFilter selects elements of a list. It compares a value of each element with a literal, or
// only checks that the value exists.
type pathFilter struct {
	path  Path   // relative to the element
	op    string // ==, !=, or empty if the value must exist
	value string // as formatted by Format
}

// maxPath is the maximum length of an expression. It also limits how deeply filters are nested.
const maxPath = 1 << 10

// Parse parses an expression. Like kubectl it accepts expressions without braces or without the leading dot.
func Parse(text string) (Path, error) {
	if len(text) > maxPath {
		return nil, fmt.Errorf("is longer than %d characters", maxPath)
	}
	inner := strings.TrimSpace(text)
	if strings.HasPrefix(inner, "{") != strings.HasSuffix(inner, "}") {
		return nil, fmt.Errorf("%s: the braces do not match", text)
	}
	inner = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(inner, "{"), "}"))
	inner = strings.TrimPrefix(inner, "$")
	if inner != "" && inner[0] != '.' && inner[0] != '[' {
		inner = "." + inner
	}
	path, rest, err := parseSteps(inner)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", text, err)
	case rest != "":
		return nil, fmt.Errorf("%s: unexpected %q", text, rest)
	case len(path) == 0:
		return nil, fmt.Errorf("%q selects no field", text)
	}
	return path, nil
}

// parseSteps parses steps up to the first character that cannot begin a step.
func parseSteps(s string) (path Path, rest string, err error) {
	for s != "" {
		var step pathStep
		switch {
		case strings.HasPrefix(s, ".."):
			return nil, "", fmt.Errorf("%q is not supported", "..")
		case s[0] == '.':
			step, s, err = parseField(s[1:])
		case s[0] == '[':
			step, s, err = parseBrackets(s[1:])
		default:
			return path, s, nil
		}
		if err != nil {
			return nil, "", err
		}
		path = append(path, step)
	}
	return path, "", nil
}

// parseField parses the name after a dot. A backslash escapes a dot in the name.
func parseField(s string) (step pathStep, rest string, err error) {
	var name strings.Builder
	i := 0
	for ; i < len(s) && !strings.ContainsRune(".[ =!<>)", rune(s[i])); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		name.WriteByte(s[i])
	}
	switch name.String() {
	case "":
		return step, "", fmt.Errorf("a field's name is missing before %q", s)
	case "*":
		return pathStep{all: true}, s[i:], nil
	}
	return pathStep{field: name.String()}, s[i:], nil
}

// parseBrackets parses the part after an opening bracket, including the closing one.
func parseBrackets(s string) (step pathStep, rest string, err error) {
	if filter, found := strings.CutPrefix(s, "?("); found {
		return parseFilter(filter)
	}
	if s != "" && (s[0] == '\'' || s[0] == '"') {
		name, rest, err := parseQuoted(s)
		if err != nil {
			return step, "", err
		}
		if name == "" || !strings.HasPrefix(rest, "]") {
			return step, "", fmt.Errorf("a field's name in brackets must be one quoted word, not [%s", s)
		}
		return pathStep{field: name}, rest[1:], nil
	}
	inner, rest, closed := strings.Cut(s, "]")
	if !closed {
		return step, "", fmt.Errorf("a bracket is not closed: [%s", s)
	}
	if inner == "*" {
		return pathStep{all: true}, rest, nil
	}
	n, err := strconv.Atoi(inner)
	if err != nil {
		return step, "", fmt.Errorf("[%s] is neither an index, a quoted name, * nor a filter", inner)
	}
	return pathStep{index: n}, rest, nil
}

// parseFilter parses the part after "[?(", such as @.type=="Ready")].
func parseFilter(s string) (step pathStep, rest string, err error) {
	inner, found := strings.CutPrefix(strings.TrimSpace(s), "@")
	if !found {
		return step, "", fmt.Errorf("a filter must begin with @, not %q", s)
	}
	f := &pathFilter{}
	if f.path, rest, err = parseSteps(inner); err != nil {
		return step, "", err
	}
	rest = strings.TrimSpace(rest)
	for _, op := range []string{"==", "!="} {
		if after, found := strings.CutPrefix(rest, op); found {
			f.op = op
			if f.value, rest, err = parseLiteral(strings.TrimSpace(after)); err != nil {
				return step, "", err
			}
		}
	}
	rest, closed := strings.CutPrefix(strings.TrimSpace(rest), ")]")
	if !closed {
		return step, "", fmt.Errorf("a filter must be ?(@.FIELD==VALUE), ?(@.FIELD!=VALUE) or ?(@.FIELD), not ?(%s", s)
	}
	return pathStep{filter: f}, rest, nil
}

// parseLiteral parses a quoted string, a number, true or false.
func parseLiteral(s string) (value, rest string, err error) {
	if s != "" && (s[0] == '\'' || s[0] == '"') {
		return parseQuoted(s)
	}
	end := strings.IndexAny(s, " )")
	if end <= 0 {
		return "", "", fmt.Errorf("a filter has no value: %q", s)
	}
	return s[:end], s[end:], nil
}

// parseQuoted parses a string in single or double quotes.
func parseQuoted(s string) (value, rest string, err error) {
	value, rest, closed := strings.Cut(s[1:], s[:1])
	if !closed {
		return "", "", fmt.Errorf("a quotation mark is not closed: %s", s)
	}
	return value, rest, nil
}

// Find returns the values that the expression selects. The parameter from must be decoded JSON, in the form that
// json.Unmarshal produces.
func (p Path) Find(from any) []any {
	values := []any{from}
	for _, step := range p {
		var next []any
		for _, v := range values {
			next = step.appendTo(next, v)
		}
		values = next
	}
	return values
}

// appendTo appends the selected values of v.
func (s pathStep) appendTo(out []any, v any) []any {
	switch v := v.(type) {
	case map[string]any:
		if s.all {
			for _, value := range v {
				out = append(out, value)
			}
		} else if value, found := v[s.field]; found && s.field != "" {
			out = append(out, value)
		}
	case []any:
		switch {
		case s.field != "":
		case s.all:
			out = append(out, v...)
		case s.filter != nil:
			for _, element := range v {
				if s.filter.matches(element) {
					out = append(out, element)
				}
			}
		case s.index >= 0 && s.index < len(v):
			out = append(out, v[s.index])
		case s.index < 0 && -s.index <= len(v):
			out = append(out, v[len(v)+s.index])
		}
	}
	return out
}

func (f *pathFilter) matches(element any) bool {
	values := f.path.Find(element)
	if len(values) != 1 {
		return f.op == "!="
	}
	switch text, simple := Format(values[0]); f.op {
	case "==":
		return simple && text == f.value
	case "!=":
		return !simple || text != f.value
	}
	return true
}

// Format formats a string, a number, a boolean or null. For an object or a list it returns false.
func Format(v any) (text string, simple bool) {
	switch v := v.(type) {
	case map[string]any, []any:
		return "", false
	case string:
		return v, true
	case nil:
		return "null", true
	}
	return fmt.Sprint(v), true
}

// Decode converts an object to the form that Path.find needs. It preserves the digits of numbers.
func Decode(object any) (any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var out any
	return out, dec.Decode(&out)
}
