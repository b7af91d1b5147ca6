package hostile

import (
	"bytes"
	"encoding/json"
	"strings"
)

func toJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // values that were decoded from JSON can be encoded
	}
	return b.Bytes()
}

// toYAML returns YAML in block style, with scalars in JSON syntax.
func toYAML(v any) []byte {
	var b bytes.Buffer
	writeYAML(&b, v, 0)
	return b.Bytes()
}

func writeYAML(b *bytes.Buffer, v any, depth int) {
	indent := strings.Repeat("  ", depth)
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(indent + "{}\n")
		}
		for _, key := range sorted(v) {
			b.WriteString(indent)
			b.Write(bytes.TrimSpace(toJSON(key)))
			b.WriteByte(':')
			writeValue(b, v[key], depth)
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(indent + "[]\n")
		}
		for _, item := range v {
			b.WriteString(indent + "-")
			writeValue(b, item, depth)
		}
	default:
		b.WriteString(indent)
		b.Write(toJSON(v))
	}
}

// writeValue writes a value after the value's key or dash. A scalar is written on the same line, other
// values on the lines below.
func writeValue(b *bytes.Buffer, v any, depth int) {
	switch v.(type) {
	case map[string]any, []any:
		b.WriteByte('\n')
		writeYAML(b, v, depth+1)
	default:
		b.WriteByte(' ')
		b.Write(toJSON(v))
	}
}
