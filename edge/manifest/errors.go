package manifest

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/printable"
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
	// Line is the line in the manifest, counted from 1. It is 0 if the problem does not concern a line.
	Line int

	base string // the path of the object in its document, such as items[3]
}

// Error joins the non-empty fields, from the origin with the line to the detail.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	origin := e.Origin
	if e.Line > 0 {
		origin = fmt.Sprintf("%s:%d", origin, e.Line)
	}
	for _, part := range []string{origin, e.Pod, e.Field, e.Detail} {
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
	base   string // see Error
}

func (at location) fail(path, format string, args ...any) error {
	return &Error{Origin: at.origin, Pod: at.pod, Field: sanitize(path), Detail: sanitize(fmt.Sprintf(format, args...)), base: at.base}
}

// failText returns the errors of a document that cannot be parsed. Each of them has the line of its lineError.
func (at location) failText(err error) error {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	errs := make([]error, 0, min(len(list), maxErrors))
	for _, err := range list[:min(len(list), maxErrors)] {
		e := &Error{Origin: at.origin, Pod: at.pod, Detail: sanitize(err.Error())}
		var line lineError
		if errors.As(err, &line) {
			e.Line, e.Detail = line.line, sanitize(line.text)
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// A lineError is an error message about a line of the manifest.
type lineError struct {
	line int // counted from 1
	text string
}

func (e lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

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
func sanitize(text string) string { return printable.Cut(text, maxText) }
