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

// addPositions joins the errors of a validation. If a file sets the field of an error, the error gets the prefix
// "file:line: ". If several files set the field, the prefix names the last of them. The error of a field that a flag
// sets is not changed. After the first maxMistakes errors, addPositions only adds the number of the others: a sent
// configuration may have any number of errors, and finding their lines takes time.
func addPositions(errs []error, fs flagSet, kube []document, edge document) error {
	var flags []string
	fs.Visit(func(f *pflag.Flag) { flags = append(flags, fs.rows[f.Name].field) })
	if more := len(errs) - maxMistakes; more > 0 {
		errs = append(errs[:maxMistakes:maxMistakes], fmt.Errorf("and %d more mistakes", more))
	}
	edges := topFields([]document{edge})
	kubes := topFields(kube)
	out := make([]error, len(errs))
	for i, err := range errs {
		out[i] = err
		var e *field.Error
		if !errors.As(err, &e) {
			continue
		}
		docs, prefix := kubes, ""
		path, isEdge := strings.CutPrefix(e.Field, EdgeKind+".")
		if isEdge {
			docs, prefix = edges, "edge."
		}
		top := path[:len(path)-len(strings.TrimLeftFunc(path, func(r rune) bool { return r != '.' && r != '[' }))]
		if slices.Contains(flags, prefix+top) {
			continue
		}
		if at := findPosition(docs, top, path); at != "" {
			out[i] = fmt.Errorf("%s: %w", at, err)
		}
	}
	return errors.Join(out...)
}

// documentFields is a document with the names of its top-level fields.
type documentFields struct {
	document
	names map[string]json.RawMessage
}

func topFields(docs []document) []documentFields {
	out := make([]documentFields, len(docs))
	for i, doc := range docs {
		out[i].document = doc
		_ = json.Unmarshal(doc.json, &out[i].names) // fails only for the empty document, which has no fields
	}
	return out
}

// findPosition returns "file:line" for a path. The file is the last document that has the top-level field. It
// returns "" if no document has the field.
func findPosition(docs []documentFields, top, path string) string {
	for _, doc := range slices.Backward(docs) {
		if doc.names[top] == nil {
			continue
		}
		if line := lineOf(doc.text, path); line > 0 {
			return fmt.Sprintf("%s:%d", doc.file, line)
		}
		return doc.file
	}
	return ""
}
