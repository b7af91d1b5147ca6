package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/spelling"
)

// A FileError is a mistake in a configuration file, with its position.
type FileError struct {
	File   string
	Line   int    // counted from 1; 0 if unknown
	Field  string // path of the field, such as authentication.webhook.cacheTTL; may be empty
	Detail string
}

// Error returns "file:line: field: detail", without the parts that are unknown.
func (e *FileError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Detail
}

// A document is a strictly decoded configuration file, as JSON.
type document struct {
	file string // absolute
	json []byte
	text []byte // the source, YAML or JSON
}

// readDocument reads a YAML or JSON file and decodes it strictly into v. A duplicate or unknown
// field, a wrong type, and a wrong apiVersion or kind are errors that name the file, line and
// field. All errors that are found are joined.
func readDocument(own *ownFiles, file, apiVersion, kind string, v any) (document, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return document{}, err
	}
	data, err := own.read(file)
	if err != nil {
		return document{}, fmt.Errorf("read configuration: %w", err)
	}
	doc, err := decode(file, data, apiVersion, kind, v)
	return document{file, doc, data}, err
}

func decode(file string, data []byte, apiVersion, kind string, v any) ([]byte, error) {
	fail := func(line int, field, format string, args ...any) error {
		return &FileError{File: file, Line: line, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	if line := secondDocument(data); line > 0 {
		return nil, fail(line, "", "a second document; a file must contain one %s", kind)
	}
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, yamlErrors(file, err)
	}
	var head map[string]any
	if err := json.Unmarshal(doc, &head); err != nil || head == nil {
		return nil, fail(0, "", "want a document with apiVersion: %s and kind: %s", apiVersion, kind)
	}
	if kind == EdgeKind && head["apiVersion"] == earlierEdgeAPIVersion {
		head["apiVersion"] = apiVersion
	}
	for _, want := range []struct{ field, value string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		if have := head[want.field]; have != want.value {
			return nil, fail(lineOf(data, want.field), want.field, "want %s, have %s", want.value, quoteValue(have))
		}
	}
	strict, err := kjson.UnmarshalStrict(doc, v)
	var errs []error
	if err != nil {
		for _, w := range wrongLeaves(doc, v) {
			errs = append(errs, fail(lineOf(data, w.path), w.path, "%v", w.err))
		}
		if len(errs) == 0 {
			errs = append(errs, fail(0, "", "%v", err))
		}
	}
	for _, s := range strict {
		var at kjson.FieldError
		if errors.As(s, &at) {
			errs = append(errs, fail(lineOf(data, at.FieldPath()), at.FieldPath(), "unknown field%s",
				spelling.SuggestField(reflect.TypeOf(v).Elem(), at.FieldPath())))
			continue
		}
		errs = append(errs, fail(0, "", "%v", s))
	}
	return doc, errors.Join(errs...)
}

func quoteValue(v any) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("%q", fmt.Sprint(v))
}

// secondDocument returns the line of the separator before a second document, or 0. Separators
// before the first and after the last document are allowed.
func secondDocument(data []byte) int {
	first, sep := false, 0
	for i, line := range strings.Split(string(data), "\n") {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "---"):
			if first {
				sep = i + 1
			}
		case text == "" || strings.HasPrefix(text, "#"):
		case sep > 0:
			return sep
		default:
			first = true
		}
	}
	return 0
}

// yamlErrors converts the messages of the YAML parser, one per line, to FileErrors.
func yamlErrors(file string, err error) error {
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "error converting YAML to JSON: "))
		if line == "yaml: unmarshal errors:" || line == "" {
			continue
		}
		e := &FileError{File: file, Detail: strings.TrimPrefix(line, "yaml: ")}
		if rest, ok := strings.CutPrefix(e.Detail, "line "); ok {
			number, detail, _ := strings.Cut(rest, ": ")
			if n, err := strconv.Atoi(number); err == nil {
				e.Line, e.Detail = n, detail
			}
		}
		if key, ok := strings.CutSuffix(e.Detail, " already set in map"); ok {
			e.Field, e.Detail = strings.Trim(strings.TrimPrefix(key, "key "), `"`), "duplicate field"
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// maxMistakes is the maximum number of wrong values that are reported for a file, because finding their lines takes
// time.
const maxMistakes = 100

type wrongLeaf struct {
	path string
	err  error
}

// wrongLeaves returns the values of a wrong type. It is called only after a decoding error. It decodes each scalar
// separately, because the decoder of the whole document stops at the first error, and does not name the field of a wrong
// duration or quantity.
func wrongLeaves(doc []byte, v any) []wrongLeaf {
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		return nil
	}
	var wrong []wrongLeaf
	walkLeaves(tree, "", func(path string, _, alone any) {
		if len(wrong) >= maxMistakes {
			return
		}
		data, err := json.Marshal(alone)
		if err != nil {
			return
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, newLike(v)); err != nil {
			wrong = append(wrong, wrongLeaf{path, plainJSON(err)})
		}
	})
	return wrong
}

func plainJSON(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return errors.New(spelling.DescribeType(t))
	}
	return err
}
