package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Decode decodes a document of another kind as strictly as a configuration, with a limited amount of memory. Each error is a *FileError.
func Decode(name string, data []byte, apiVersion, kind string, v any) error {
	if err := checkWeight(name, data); err != nil {
		return err
	}
	_, err := decode(name, data, apiVersion, kind, v)
	return err
}

// NewFileError returns the mistake of a field of a YAML file, with its line. It is not inlined, because it is called in many places.
//
//go:noinline
func NewFileError(name string, data []byte, field, format string, args ...any) *FileError {
	return &FileError{File: name, Line: lineOf(data, field), Field: field, Detail: fmt.Sprintf(format, args...)}
}

// SetFields sets fields in the configuration data, which may be empty, and returns the result. The keys of the parameter fields are paths,
// such as authentication.x509.clientCAFile. The configuration is an EdgeConfiguration if edge is true, and otherwise a
// KubeletConfiguration. SetFields also returns the paths that the configuration had set before, sorted. Lists are replaced.
func SetFields(name string, data []byte, edge bool, fields map[string]any) (out []byte, had []string, err error) {
	version, kind, into := kubeletAPIVersion, kubeletKind, any(&kubelet.KubeletConfiguration{})
	if edge {
		version, kind, into = EdgeAPIVersion, EdgeKind, &EdgeConfiguration{}
	}
	head := map[string]any{"apiVersion": version, "kind": kind}
	doc, err := json.Marshal(head)
	if err != nil {
		return nil, nil, err
	}
	if len(data) > 0 {
		if err := checkWeight(name, data); err != nil {
			return nil, nil, err
		}
		if doc, err = decode(name, data, version, kind, into); err != nil {
			return nil, nil, err
		}
	}
	target, err := decodeTree(doc)
	if err != nil {
		return nil, nil, err
	}
	before, list := map[string]bool{}, func(path string) string { head, _, _ := strings.Cut(path, "["); return head }
	walkLeaves(target, "", func(path string, _, _ any) { before[list(path)] = true })
	for path, value := range fields {
		patch, err := treeOf(path, value)
		if err != nil {
			return nil, nil, err
		}
		walkLeaves(patch, "", func(path string, _, _ any) {
			if before[list(path)] && !slices.Contains(had, list(path)) {
				had = append(had, list(path))
			}
		})
		target = mergeTrees(target, patch)
	}
	slices.Sort(had)
	out, err = yaml.Marshal(target)
	return out, had, err
}

// treeOf returns a tree in which only one field has a value.
func treeOf(path string, value any) (tree any, err error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if tree, err = decodeTree(data); err != nil {
		return nil, err
	}
	keys := strings.Split(path, ".")
	for i := len(keys) - 1; i >= 0; i-- {
		tree = map[string]any{keys[i]: tree}
	}
	return tree, nil
}
