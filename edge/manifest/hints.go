package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/islet-edge/islet/internal/pattern"
)

// notFilledIn is appended to the error about a line that contains a template.
const notFilledIn = ": this looks like a template that was not filled in"

// templates matches the variables of template languages: {{ x }}, {% x %}, ${X}, <X> and @@X@@. The variables of a container's
// arguments, $(X), belong to Kubernetes.
var templates = pattern.New(`\{\{.*\}\}|\{%.*%\}|\$\{[A-Za-z_][^}]*\}|<[A-Za-z][A-Za-z0-9 _-]*>|@@[A-Za-z_]+@@`)

// IsTemplate reports whether a text contains a variable of a template language, such as {{ x }} or ${X}.
func IsTemplate(text string) bool { return templates().MatchString(text) }

// explain returns the line and the message of an error of the YAML parser. The parser may report the line before or after the error. If
// one of these lines is indented with a tab, or has a template, explain reports that line.
func (d document) explain(n int, text string) (line int, message string) {
	for _, i := range []int{n, n + 1, n - 1} {
		source := d.lineText(i)
		indent := source[:len(source)-len(strings.TrimLeft(source, " \t"))]
		if strings.Contains(indent, "\t") {
			return i, "is indented with a tab, but YAML permits only spaces"
		}
	}
	for _, i := range []int{n, n + 1, n - 1} {
		if IsTemplate(d.lineText(i)) {
			return i, text + notFilledIn
		}
	}
	return n, text
}

// findTemplate returns the error for a message of the parser that has no line. A template such as {{ x }} can cause such a message, because
// the parser reads it as a mapping with a mapping as its key. If the document contains such a template, the error has the line of the first
// one.
func (d document) findTemplate(message string) error {
	n := 0
	for text := range bytes.Lines(d.text) {
		n++
		if before, _, _ := bytes.Cut(text, []byte("#")); bytes.Contains(before, []byte("{{")) && templates().Match(before) {
			return lineError{n + d.line, message + notFilledIn}
		}
	}
	return errors.New(message)
}

// foreignFile recognizes files of other programs, which have no kind. It returns a field of the file, and advice for the user. The advice
// is empty if the program is not known.
func foreignFile(raw []byte) (field, advice string) {
	var file struct {
		Services   map[string]json.RawMessage `json:"services"`
		APIVersion string                     `json:"apiVersion"`
		Version    string                     `json:"version"`
		Resources  []string                   `json:"resources"`
	}
	_ = decodeLenient(raw, &file) // a field of the wrong type is of another program
	switch {
	case len(file.Services) > 0:
		return "services", "this is a Compose file, and islet runs Pods: write each service as a container of a Pod; " +
			"see docs/standalone.md#compose-files"
	case file.APIVersion == "v2" && file.Version != "":
		return "", "this is a chart of Helm: write its manifests with 'helm template', and use them"
	case len(file.Resources) > 0:
		return "", "this is a kustomization: write its manifests with 'kubectl kustomize', and use them"
	}
	return "", ""
}

// replacement returns advice about a kind that a node does not run, or "" if there is none.
func replacement(kind string) string {
	switch kind {
	case "Service", "Ingress":
		return "; a pod of this node gets a port of the host with ports[].hostPort"
	case "Kustomization":
		return "; write its manifests with 'kubectl kustomize', and use them"
	case "KubeletConfiguration", "EdgeConfiguration":
		return "; a configuration is tried with 'islet config apply FILE'"
	case "Namespace":
		return "; leave it out, because a node needs no object for a namespace"
	}
	return ""
}

// quantityText matches a number with the unit of another notation.
var quantityText = pattern.New(`^([0-9]+(?:[.,][0-9]+)?)\s*([A-Za-z]*)$`)

// explainQuantity adds the quantity that was probably meant to the error of a decoder.
func explainQuantity(raw []byte, err error) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return err
	}
	m := quantityText().FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return err
	}
	unit, known := map[string]string{"": "", "b": "", "k": "k", "kb": "k", "kib": "Ki", "ki": "Ki", "m": "m", "mb": "M", "mib": "Mi",
		"mi": "Mi", "g": "G", "gb": "G", "gib": "Gi", "gi": "Gi", "t": "T", "tb": "T", "tib": "Ti", "ti": "Ti"}[strings.ToLower(m[2])]
	if !known {
		return err
	}
	return fmt.Errorf("%q is not a quantity: did you mean %s?", text, strings.ReplaceAll(m[1], ",", ".")+unit)
}
