package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/islet-edge/islet/internal/weight"
)

// decodeStrict decodes JSON and stores the result at the pointer into. Unknown and duplicate fields are errors, as in the strict field
// validation of the API server.
func decodeStrict(raw []byte, into any, at location) error {
	if err := weight.JSON(raw, into, maxMemory); err != nil {
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
		}
		errs = append(errs, at.fail(path, "%s", detail))
	}
	return errors.Join(errs...)
}

// locateField finds the field that caused a decoding error. The decoder's message contains no list indexes, and no path for types with
// their own decoder, such as quantities. Each part of the JSON text is therefore decoded separately, down to the smallest part that fails.
func locateField(t reflect.Type, raw []byte, path string, err error) (string, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
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
			} else if member, below = fieldType(t, name), strings.TrimPrefix(path+"."+name, "."); member == nil {
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

// fieldType returns the type of the field with the given JSON name. The field is in t, or in a struct that t embeds.
func fieldType(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if found := fieldType(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// typeDetail translates a decoder's message about Go types for users.
func typeDetail(err error) string {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return fmt.Sprintf("Invalid value: %v", err)
	}
	want := e.Type
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	name := "an object"
	switch want.Kind() {
	case reflect.String:
		name = "a string (in quotes)"
	case reflect.Bool:
		name = "true or false"
	case reflect.Slice:
		name = "a list"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		name = "a whole number"
	case reflect.Float64:
		name = "a number"
	}
	return fmt.Sprintf("Invalid value: must be %s, not %s", name, e.Value)
}
