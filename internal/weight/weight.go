package weight

import (
	"errors"
	"reflect"
)

// ErrTooHeavy is the error for an input that would take more memory than its bound once
// it is decoded.
var ErrTooHeavy = errors.New("takes too much memory once it is decoded")

// ErrTooDeep is the error for an input with more levels than any object that a node reads.
var ErrTooDeep = errors.New("is nested too deeply")

const (
	// maxDepth is the deepest nesting that is walked. The deepest API type of a pod has
	// about 20 levels.
	maxDepth = 100
	// entry is the price of a map entry beside its key and value: its part of the table,
	// which is at most half empty after it has grown.
	entry = 48
	// growth is the factor by which a slice that grows exceeds its content.
	growth = 2
	word   = 8
)

// A scale adds up weights until the bound is passed.
type scale struct{ left int64 }

func (s *scale) add(bytes int) error {
	if s.left -= int64(bytes); s.left < 0 {
		return ErrTooHeavy
	}
	return nil
}

// item is the weight of one more element of a slice of t.
func item(t reflect.Type) int { return growth * int(t.Size()) }

// pair is the weight of one more entry of a map.
func pair(t reflect.Type) int { return entry + growth*int(t.Key().Size()+t.Elem().Size()) }

// Of returns the memory that an object and everything that it refers to occupies. What two
// pointers refer to counts twice.
func Of(object any) int64 {
	v := reflect.ValueOf(object)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Type().Size()) + beyond(v, 0)
}

// beyond is the memory that v refers to, beside its own.
func beyond(v reflect.Value, depth int) (sum int64) {
	if depth > maxDepth {
		return 0
	}
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + beyond(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			sum += beyond(v.Field(i), depth+1)
		}
	case reflect.Slice:
		sum = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if flat(v.Type().Elem()) {
			return sum
		}
		for i := range v.Len() {
			sum += beyond(v.Index(i), depth+1)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			sum += int64(pair(v.Type())) + beyond(entries.Key(), depth+1) + beyond(entries.Value(), depth+1)
		}
	}
	return sum
}

// flat reports whether values of a type refer to nothing else.
func flat(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 }
