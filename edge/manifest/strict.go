package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/spelling"
)

// decodeStrict decodes JSON into the value to which the caller's pointer refers. Unknown and duplicate fields are errors, as in the strict
// field validation of the API server.
func decodeStrict(raw []byte, into any, at location) error {
	if err := inputweight.JSON(raw, into, maxMemory); err != nil {
		return at.fail("", "%v", err)
	}
	found, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		path, err := locateField(reflect.TypeOf(into).Elem(), raw, "", err)
		return at.fail(path, "%s", typeDetail(err))
	}
	var errs []error
	for _, e := range found[:min(len(found), maxErrors)] {
		detail, path := e.Error(), ""
		var fieldErr kjson.FieldError
		if errors.As(e, &fieldErr) {
			path = fieldErr.FieldPath()
			detail, _, _ = strings.Cut(detail, ` "`) // cut off the field's path, which follows
			if detail == unknownField {
				detail += spelling.SuggestField(reflect.TypeOf(into).Elem(), path)
			}
		}
		errs = append(errs, at.fail(path, "%s", detail))
	}
	return errors.Join(errs...)
}

// isOnlyStrict reports whether an error of decodeStrict has only unknown and duplicate fields, so that the object is decoded nevertheless.
func isOnlyStrict(err error) bool {
	for _, e := range ErrorsIn(err) {
		if !strings.HasPrefix(e.Detail, unknownField) && !strings.HasPrefix(e.Detail, "duplicate field") {
			return false
		}
	}
	return true
}

const unknownField = "unknown field"

// locateField finds the field that caused a decoding error. The decoder's message contains no list indexes, and no path for types with
// their own decoder, such as quantities. Each part of the JSON text is therefore decoded separately, down to the smallest part that fails.
func locateField(t reflect.Type, raw []byte, path string, err error) (string, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		if t == reflect.TypeFor[resource.Quantity]() {
			err = explainQuantity(raw, err)
		}
		return path, err
	}
	try := func(t reflect.Type, raw []byte, path string) (string, error, bool) {
		err := kjson.UnmarshalCaseSensitivePreserveInts(raw, reflect.New(t).Interface())
		if err == nil {
			return "", nil, false
		}
		path, err = locateField(t, raw, path, err)
		return path, err, true
	}
	switch t.Kind() {
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) == nil {
			for i, item := range items {
				if p, e, bad := try(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i)); bad {
					return p, e
				}
			}
		}
	case reflect.Map, reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return path, err
		}
		names := make([]string, 0, len(members))
		for name := range members {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			member, below := t, fmt.Sprintf("%s[%s]", path, name)
			if t.Kind() == reflect.Map {
				member = t.Elem()
			} else if member, below = spelling.FieldType(t, name), strings.TrimPrefix(path+"."+name, "."); member == nil {
				continue
			}
			if p, e, bad := try(member, members[name], below); bad {
				return p, e
			}
		}
	}
	return path, err
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// typeDetail translates a decoder's message about Go types for users.
func typeDetail(err error) string {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return fmt.Sprintf("Invalid value: %v", err)
	}
	return "Invalid value: " + spelling.DescribeType(e)
}
