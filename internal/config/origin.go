package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nameFiles joins the errors of a validation. The error of a field that a file sets begins with "file:line: ". For a
// field that several files set, this is the last one. An error of a field that a flag sets is not changed.
func nameFiles(errs []error, fs flagSet, kube []document, edge document) error {
	var flags []string
	fs.Visit(func(f *pflag.Flag) { flags = append(flags, fs.rows[f.Name].field) })
	out := make([]error, len(errs))
	for i, err := range errs {
		out[i] = err
		var e *field.Error
		if !errors.As(err, &e) {
			continue
		}
		docs, prefix := kube, ""
		path, isEdge := strings.CutPrefix(e.Field, EdgeKind+".")
		if isEdge {
			docs, prefix = []document{edge}, "edge."
		}
		top := path[:len(path)-len(strings.TrimLeftFunc(path, func(r rune) bool { return r != '.' && r != '[' }))]
		if slices.Contains(flags, prefix+top) {
			continue
		}
		if at := position(docs, top, path); at != "" {
			out[i] = fmt.Errorf("%s: %w", at, err)
		}
	}
	return errors.Join(out...)
}

// position returns "file:line" for the last document that has the top-level field, with the line of the path. It
// returns "" if no document has the field.
func position(docs []document, top, path string) string {
	for _, doc := range slices.Backward(docs) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(doc.json, &fields) != nil || fields[top] == nil {
			continue
		}
		if line := lineOf(doc.text, path); line > 0 {
			return fmt.Sprintf("%s:%d", doc.file, line)
		}
		return doc.file
	}
	return ""
}
