package weight

import (
	"errors"
	"reflect"
)

// ErrTooHeavy is the error for an input that takes more memory than its bound once it is decoded.
var ErrTooHeavy = errors.New("takes too much memory once it is decoded")

// ErrTooDeep is the error for an input that is nested more deeply than maxDepth.
var ErrTooDeep = errors.New("is nested too deeply")

const (
	// maxDepth is the deepest nesting that is accepted. The types of a pod have about 20 levels.
	maxDepth = 100
	// entry is the memory for a map entry in addition to its key and value, in a table that is half
	// empty because it has just grown.
	entry = 48
	// growth is the maximum ratio of a growing slice's capacity to its length.
	growth = 2
	word   = 8
)

// A scale adds up weights until the bound is exceeded.
type scale struct{ left int64 }

func (s *scale) add(bytes int) error {
	if s.left -= int64(bytes); s.left < 0 {
		return ErrTooHeavy
	}
	return nil
}

// item returns the weight of one more element of a slice of t.
func item(t reflect.Type) int { return growth * int(t.Size()) }

// pair returns the weight of one more entry of a map.
func pair(t reflect.Type) int { return entry + growth*int(t.Key().Size()+t.Elem().Size()) }

// SizeOf returns the number of bytes of memory that an object and everything that it refers to
// occupy. It counts memory twice if two pointers refer to it.
func SizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Type().Size()) + referenced(v, 0)
}

// referenced returns the memory that v refers to, without v's own size.
func referenced(v reflect.Value, depth int) (sum int64) {
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
		return int64(v.Elem().Type().Size()) + referenced(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			sum += referenced(v.Field(i), depth+1)
		}
	case reflect.Slice:
		sum = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if flat(v.Type().Elem()) {
			return sum
		}
		for i := range v.Len() {
			sum += referenced(v.Index(i), depth+1)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			sum += int64(pair(v.Type())) + referenced(entries.Key(), depth+1) + referenced(entries.Value(), depth+1)
		}
	}
	return sum
}

// flat reports whether values of a type refer to nothing else.
func flat(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 }
