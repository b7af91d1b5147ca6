package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/pattern"
)

const (
	// Limits of a manifest. A decoded object may use maxMemory bytes, and the tree of a YAML document may use maxTree bytes.
	maxMemory    = 8 << 20
	maxTree      = 32 << 20
	maxDocuments = 1000
	maxYAML      = 1 << 20
	maxObjects   = 20_000
	maxDepth     = 64
)

// A document is one YAML or JSON document of a manifest.
type document struct {
	text []byte
	yaml bool
	line int // number of lines in the manifest before the first line of text
}

func splitJSON(data []byte) ([]document, error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(data))
	begin, line := 0, 0
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			at := min(max(syntax.Offset, 0), int64(len(data)))
			return nil, lineError{1 + bytes.Count(data[:at], []byte("\n")), err.Error()}
		case err != nil:
			return nil, fmt.Errorf("JSON ends early: %w", err)
		case len(docs) == maxDocuments:
			return nil, errTooMany
		}
		first := int(dec.InputOffset()) - len(raw)
		line += bytes.Count(data[begin:first], []byte("\n"))
		begin = first
		docs = append(docs, document{text: raw, line: line})
	}
}

// splitYAML splits a manifest at separator lines. It omits documents without content.
func splitYAML(data []byte) ([]document, error) {
	var docs []document
	begin, line, first := 0, 0, 0
	content := false
	cut := func(end int) {
		if content && len(docs) <= maxDocuments { // one too many is enough for the error
			docs = append(docs, document{text: data[begin:end], yaml: true, line: first})
		}
	}
	for pos := 0; pos < len(data); line++ {
		end := pos + bytes.IndexByte(data[pos:], '\n') + 1
		if end == pos {
			end = len(data)
		}
		text := bytes.TrimRight(data[pos:end], " \t\r\n")
		rest, separator := bytes.CutPrefix(text, []byte("---"))
		separator = separator && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
		if separator || string(text) == "..." {
			cut(pos)
			begin, first, content = pos+len("---"), line, false
			text = nil
			if separator {
				text = rest
			}
		}
		text = bytes.TrimLeft(text, " \t")
		content = content || len(text) > 0 && text[0] != '#' && text[0] != '%'
		pos = end
	}
	cut(len(data))
	if len(docs) > maxDocuments {
		return nil, errTooMany
	}
	return docs, nil
}

// read returns the document as JSON. It adds the number of JSON objects in the document to the caller's counter, and returns an error if
// the counter exceeds maxObjects.
func (d document) read(objects *int) ([]byte, error) {
	raw, err := d.toJSON()
	if err != nil {
		return nil, err
	}
	n, err := countObjects(raw)
	if *objects += n; err == nil && *objects > maxObjects {
		err = fmt.Errorf("contains more than %d objects", maxObjects)
	}
	return raw, err
}

// toJSON converts the document to JSON. The result has at most MaxSize bytes.
func (d document) toJSON() ([]byte, error) {
	if !d.yaml {
		return d.text, nil
	}
	if len(d.text) > maxYAML {
		return nil, fmt.Errorf("is larger than %d bytes of YAML", maxYAML)
	}
	if err := inputweight.YAML(d.text, maxTree); err != nil {
		return nil, fmt.Errorf("%w: write it as JSON", err)
	}
	tree, err := d.parse()
	if err != nil {
		return nil, d.yamlError(err)
	}
	var out bytes.Buffer
	if err := writeJSON(&out, tree); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// mergeKey matches text that may be a YAML merge key (<<).
var mergeKey = pattern.New(`(?m)(^|[\s{,])<<(\s*:)`)

// parse parses YAML and rejects duplicate keys. The strict parser also rejects a key that overrides a merged key, although that is valid. A
// document with merge keys is therefore parsed twice: first strictly, with the merge keys quoted so that they are ordinary keys, and then
// normally.
func (d document) parse() (tree any, err error) {
	if !mergeKey().Match(d.text) {
		err = yaml.UnmarshalStrict(d.text, &tree)
		return tree, err
	}
	var without any
	if err := yaml.UnmarshalStrict(mergeKey().ReplaceAll(d.text, []byte(`$1"<<"$2`)), &without); err != nil {
		return nil, err
	}
	err = yaml.Unmarshal(d.text, &tree)
	return tree, err
}

var yamlLine = pattern.New(`^line (\d+): `)

// yamlError converts the messages of the parser to values of type lineError. Their lines count from the start of the manifest.
func (d document) yamlError(err error) error {
	texts := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		texts = several.Errors
	}
	var errs []error
	for _, text := range texts[:min(len(texts), maxErrors)] {
		m := yamlLine().FindStringSubmatch(text)
		if m == nil {
			errs = append(errs, d.findTemplate(text))
			continue
		}
		n, _ := strconv.Atoi(m[1])
		line, text := d.explain(n, text[len(m[0]):])
		errs = append(errs, lineError{line + d.line, text})
	}
	return errors.Join(errs...)
}

var (
	errTooMany  = fmt.Errorf("contains more than %d documents", maxDocuments)
	errTooLarge = fmt.Errorf("is larger than %d bytes with its aliases written out", MaxSize)
)

// countObjects returns the number of JSON objects in valid JSON. It returns an error if they are nested too deeply for recursive functions.
func countObjects(text []byte) (int, error) {
	objects, depth, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if c == '{' {
				objects++
			}
			depth++
			if depth > maxDepth {
				return 0, fmt.Errorf("is nested more than %d levels deep", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return objects, nil
}

// writeJSON writes a value of the YAML parser as JSON. YAML aliases share memory, so the output can be far larger than the parsed value.
// writeJSON returns an error when the output exceeds MaxSize.
func writeJSON(out *bytes.Buffer, v any) error {
	if out.Len() > MaxSize {
		return errTooLarge
	}
	switch v := v.(type) {
	case map[any]any:
		return writeObject(out, v)
	case []any:
		out.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case nil, bool, int, int64, uint64, string:
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("the number %v has no place in a manifest", v)
		}
	default:
		return fmt.Errorf("a value of YAML type %T has no place in a manifest", v)
	}
	text, err := json.Marshal(v)
	out.Write(text)
	return err
}

func writeObject(out *bytes.Buffer, object map[any]any) error {
	keys := make([]string, 0, len(object))
	values := make(map[string]any, len(object))
	for k, v := range object {
		name, err := keyText(k)
		if err != nil {
			return err
		}
		if _, twice := values[name]; twice {
			return fmt.Errorf("key %q already set in map", name)
		}
		keys, values[name] = append(keys, name), v
	}
	slices.Sort(keys)
	out.WriteByte('{')
	for i, name := range keys {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeJSON(out, name); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := writeJSON(out, values[name]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// keyText converts a YAML key to a string. A number or a boolean, such as 8080 or true without quotes, becomes its text, as in Kubernetes.
func keyText(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(k), nil
	}
	return "", fmt.Errorf("a key of YAML type %T has no place in a manifest", k)
}
