package manifest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/islet-edge/islet/internal/inputweight"
)

// A lineTree finds the lines of fields in one document. It is a part of a parsed document, and reads its children when they are needed. The
// parser does not export lines, but its decoding errors contain them. A lineTree therefore decodes each value into a type that does not
// match the value, and takes the line from the error.
type lineTree struct {
	line   int // counted from 1 in the document; 0 if unknown
	decode func(any) error
	keys   map[string]*lineTree
	items  []*lineTree
	read   bool
}

// UnmarshalYAML stores the decoder of a value.
func (n *lineTree) UnmarshalYAML(decode func(any) error) error {
	n.decode = decode
	return nil
}

// A keyLine is a key of a mapping, with its line.
type keyLine struct {
	name string
	line int
}

// UnmarshalYAML decodes a scalar key. Other keys remain empty.
func (k *keyLine) UnmarshalYAML(decode func(any) error) error {
	var v any
	if err := decode(&v); err != nil {
		return nil
	}
	if name, err := keyText(v); err == nil {
		k.name = name
	}
	k.line = lineOf(decode)
	return nil
}

// lineOf returns the line of a value. It is 0 for null.
func lineOf(decode func(any) error) int {
	var scalar []struct{}
	line := lineIn(decode(&scalar))
	if line == 0 { // a sequence, or a mapping
		var sequence struct{}
		line = lineIn(decode(&sequence))
	}
	return line
}

func lineIn(err error) int {
	var several *yaml.TypeError
	if !errors.As(err, &several) || len(several.Errors) == 0 {
		return 0
	}
	m := yamlLine().FindStringSubmatch(several.Errors[0])
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// maxLines is the maximum memory of the YAML tree of a document, in bytes. If the tree would be larger, it is not built, and the errors of
// the document have no lines.
const maxLines = 4 << 20

// newLineTree parses a document. If the document is too large or not valid, the result is an empty tree, which contains no lines.
func newLineTree(text []byte) *lineTree {
	root := &lineTree{}
	if inputweight.YAML(text, maxLines) != nil {
		return root
	}
	if yaml.Unmarshal(text, root) != nil {
		return &lineTree{}
	}
	if root.decode != nil {
		root.line = lineOf(root.decode)
	}
	return root
}

// load reads the children.
func (n *lineTree) load() {
	if n.read || n.decode == nil {
		return
	}
	n.read = true
	var keys map[keyLine]lineTree
	if n.decode(&keys) == nil {
		n.keys = make(map[string]*lineTree, len(keys))
		for k, child := range keys {
			child.line = k.line
			n.keys[k.name] = &child
		}
		return
	}
	var items []lineTree
	if n.decode(&items) == nil {
		for i := range items {
			if items[i].decode != nil {
				items[i].line = lineOf(items[i].decode)
			}
			n.items = append(n.items, &items[i])
		}
	}
}

// find returns the line of a field, such as spec.containers[0].image or metadata.labels[example.com/a]. If the document does not have the
// field, it returns the line of the innermost parent that the document has. It returns 0 if no line is known.
func (n *lineTree) find(path string) int {
	line := n.line
	for path != "" {
		n.load()
		child, rest := n.step(path)
		if child == nil {
			break
		}
		if child.line > 0 {
			line = child.line
		}
		n, path = child, rest
	}
	return line
}

// step returns the child that a path begins with, and the rest of the path. A key may contain dots, so step prefers the longest key.
func (n *lineTree) step(path string) (*lineTree, string) {
	if rest, ok := strings.CutPrefix(path, "["); ok {
		name, rest, _ := strings.Cut(rest, "]")
		rest = strings.TrimPrefix(rest, ".")
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i], rest
		}
		return n.keys[name], rest
	}
	for end := len(path); end > 0; end = strings.LastIndexAny(path[:end], ".[") {
		if child := n.keys[path[:end]]; child != nil {
			return child, strings.TrimPrefix(path[end:], ".")
		}
	}
	return nil, ""
}

// addLines sets the lines of errors that were found in a document.
func (d document) addLines(err error) {
	var tree *lineTree
	for _, e := range ErrorsIn(err) {
		if e.Line > 0 {
			continue
		}
		if tree == nil {
			tree = newLineTree(d.text)
		}
		if line := tree.find(strings.Trim(e.base+"."+e.Field, ".")); line > 0 {
			e.Line = line + d.line
			if d.yaml && IsTemplate(d.lineText(line)) && !strings.HasSuffix(e.Detail, notFilledIn) {
				e.Detail += notFilledIn
			}
		}
	}
}

// lineText returns a line of the document without its comment, or "".
func (d document) lineText(n int) string {
	for text := range bytes.Lines(d.text) {
		if n--; n == 0 {
			text, _, _ := strings.Cut(string(text[:min(len(text), maxText)]), " #")
			return strings.TrimRight(text, " \t\r\n")
		}
	}
	return ""
}
