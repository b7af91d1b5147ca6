package manifest

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Error is one problem of a manifest.
type Error struct {
	// Origin is the manifest's file or URL.
	Origin string
	// Pod is the name of the pod, or the position of a pod without a name in the manifest ("document 2", "items[3]"). It is empty if the
	// problem concerns the whole manifest.
	Pod string
	// Field is the path of the field, such as spec.containers[0].image. It is empty if the problem does not concern a single field.
	Field string
	// Detail is the description of the problem.
	Detail string
}

// Error joins the non-empty fields, from the origin to the detail.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, part := range []string{e.Origin, e.Pod, e.Field, e.Detail} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// ErrorsIn returns all values of type *Error that an error of Decode contains.
func ErrorsIn(err error) []*Error {
	var one *Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var set []*Error
		for _, e := range joined.Unwrap() {
			set = append(set, ErrorsIn(e)...)
		}
		return set
	}
	if errors.As(err, &one) {
		return []*Error{one}
	}
	return nil
}

const (
	// maxErrors is the maximum number of reported errors of a pod.
	maxErrors = 20
	// maxAll is the maximum number of reported errors of a manifest.
	maxAll = 100
	// maxText is the maximum length of each part of an error. A part may quote the manifest.
	maxText = 400
)

// A location is a position in a manifest. It is part of each error about that position.
type location struct {
	origin string
	pod    string
}

func (at location) fail(path, format string, args ...any) error {
	return &Error{Origin: at.origin, Pod: at.pod, Field: sanitize(path), Detail: sanitize(fmt.Sprintf(format, args...))}
}

func (at location) failAll(list field.ErrorList) error {
	errs := make([]error, 0, min(len(list), maxErrors))
	for _, e := range list[:min(len(list), maxErrors)] {
		errs = append(errs, at.fail(e.Field, "%s", e.ErrorBody()))
	}
	return errors.Join(errs...)
}

func bounded(err error) error {
	set := ErrorsIn(err)
	errs := make([]error, 0, min(len(set), maxAll))
	for _, e := range set[:min(len(set), maxAll)] {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// sanitize makes text from a manifest safe for logs and terminals.
func sanitize(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
