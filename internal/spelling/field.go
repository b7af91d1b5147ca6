package spelling

import (
	"fmt"
	"reflect"
	"strings"
)

// SuggestField returns a hint for an unknown field of an object of type t: the field that was probably meant, or the place where the
// field belongs. It returns "" if it has no hint.
func SuggestField(t reflect.Type, path string) string {
	name := path
	parents := []parentType{{"", t}}
	for at := 0; ; {
		i := strings.IndexAny(path[at:], ".[")
		if i < 0 {
			name = path[at:]
			break
		}
		key := path[at : at+i]
		parent := parents[len(parents)-1].t
		if key != "" {
			if parent.Kind() != reflect.Struct {
				return ""
			}
			if parent = FieldType(parent, key); parent == nil {
				return ""
			}
		}
		at += i
		if path[at] == '[' {
			j := strings.IndexByte(path[at:], ']')
			if k := indirect(parent).Kind(); j < 0 || k != reflect.Slice && k != reflect.Map {
				return ""
			}
			parent, at = indirect(parent).Elem(), at+j
		}
		at++
		parents = append(parents, parentType{strings.TrimSuffix(path[:at], "."), indirect(parent)})
		if at >= len(path) {
			return ""
		}
	}
	last := parents[len(parents)-1]
	if last.t.Kind() != reflect.Struct {
		return ""
	}
	if meant := Nearest(name, fieldNames(last.t)); meant != "" {
		return fmt.Sprintf(": did you mean %q?", meant)
	}
	for i := len(parents) - 1; i >= 0; i-- {
		if where := placeOf(name, parents[i]); where != "" {
			return ": it belongs in " + where
		}
	}
	return ""
}

// A parentType is the type of an object that contains an unknown field, with its path.
type parentType struct {
	path string
	t    reflect.Type
}

// placeOf returns the path of an object that has a field with the given name: the object p, or an object in a field
// of p. It returns "" if there is no such object.
func placeOf(name string, p parentType) string {
	if p.t.Kind() != reflect.Struct {
		return ""
	}
	if p.path != "" && FieldType(p.t, name) != nil {
		return p.path
	}
	for _, first := range []string{"containers", "spec", "metadata", "securityContext", "resources", "template"} {
		if child := FieldType(p.t, first); child != nil && hasField(child, name) {
			return strings.TrimPrefix(p.path+"."+first, ".")
		}
	}
	return ""
}

// hasField reports whether a struct has a field with the given name. If t is a list of structs, hasField checks the
// type of its elements.
func hasField(t reflect.Type, name string) bool {
	t = indirect(t)
	if t.Kind() == reflect.Slice {
		t = indirect(t.Elem())
	}
	return t.Kind() == reflect.Struct && FieldType(t, name) != nil
}

func indirect(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fieldNames returns the JSON names of the fields of a struct, and of the structs that it embeds.
func fieldNames(t reflect.Type) func(yield func(string) bool) {
	return func(yield func(string) bool) { visitFieldNames(t, yield) }
}

func visitFieldNames(t reflect.Type, yield func(string) bool) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag != "" && tag != "-":
			if !yield(tag) {
				return false
			}
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			if !visitFieldNames(f.Type, yield) {
				return false
			}
		}
	}
	return true
}

// FieldType returns the type of the field with the given JSON name. The field is in t, or in a struct that t embeds.
func FieldType(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if found := FieldType(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}
