package manifest

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Error is one thing that is wrong with a manifest.
type Error struct {
	// Origin is the file or URL the manifest came from.
	Origin string
	// Pod says which pod of the manifest is meant: its name, or its place
	// ("document 2", "items[3]") when it has none. Empty when the manifest
	// as a whole is meant.
	Pod string
	// Field is the path of the field, such as spec.containers[0].image. Empty
	// when no single field is meant.
	Field string
	// Detail says what is wrong with it.
	Detail string
}

// Error joins what is known, from the origin to the detail.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, part := range []string{e.Origin, e.Pod, e.Field, e.Detail} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// All lists every Error that err, as Decode returned it, consists of.
func All(err error) []*Error {
	var one *Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Error
		for _, e := range joined.Unwrap() {
			all = append(all, All(e)...)
		}
		return all
	}
	if errors.As(err, &one) {
		return []*Error{one}
	}
	return nil
}

const (
	// maxErrors bounds how many errors of one pod are told: the rest is noise.
	maxErrors = 20
	// maxAll bounds how many errors of a manifest are told.
	maxAll = 100
	// maxText bounds the parts of an error, which may quote the manifest.
	maxText = 400
)

// place is where in a manifest something is: what all its errors have in common.
type place struct {
	origin string
	pod    string
}

func (at place) fail(path, format string, args ...any) error {
	return &Error{Origin: at.origin, Pod: at.pod, Field: plain(path), Detail: plain(fmt.Sprintf(format, args...))}
}

func (at place) failAll(list field.ErrorList) error {
	errs := make([]error, 0, min(len(list), maxErrors))
	for _, e := range list[:min(len(list), maxErrors)] {
		errs = append(errs, at.fail(e.Field, "%s", e.ErrorBody()))
	}
	return errors.Join(errs...)
}

func bounded(err error) error {
	all := All(err)
	errs := make([]error, 0, min(len(all), maxAll))
	for _, e := range all[:min(len(all), maxAll)] {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// plain makes text fit for a log and a terminal, whatever the manifest says.
func plain(text string) string {
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
