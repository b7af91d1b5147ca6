package inputweight

import (
	"errors"
	"reflect"
	"time"
)

// ErrTooHeavy is the error for an input whose decoded form takes more memory than the limit.
var ErrTooHeavy = errors.New("takes too much memory once it is decoded")

// ErrTooDeep is the error for an input that is nested more deeply than maxDepth.
var ErrTooDeep = errors.New("is nested too deeply")

const (
	// maxDepth is the maximum nesting of an input. The types of a pod have about 20 levels.
	maxDepth = 100
	// mapEntry is the memory of a map entry in addition to its key and value. The map's table is
	// assumed to be half empty, as it is directly after it has grown.
	mapEntry = 48
	// maxGrowth is the maximum ratio of a growing slice's capacity to its length.
	maxGrowth = 2
	wordSize  = 8
)

// A scale adds up weights until the limit is exceeded.
type scale struct{ left int64 }

func (s *scale) add(bytes int) error {
	if s.left -= int64(bytes); s.left < 0 {
		return ErrTooHeavy
	}
	return nil
}

// elementWeight returns the weight of an additional element of a slice of t.
func elementWeight(t reflect.Type) int { return maxGrowth * int(t.Size()) }

// entryWeight returns the weight of an additional entry of a map.
func entryWeight(t reflect.Type) int { return mapEntry + maxGrowth*int(t.Key().Size()+t.Elem().Size()) }

// locationType is the type of a time's location. SizeOf must not read the locations of decoded times. They belong to package
// time, which may initialize time.Local at any time in another goroutine.
var locationType = reflect.TypeFor[*time.Location]()

// SizeOf returns the memory in bytes of an object and of all values that it refers to. If two
// pointers refer to the same value, SizeOf counts the value twice.
func SizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Type().Size()) + referencedSize(v, 0)
}

// referencedSize returns the memory in bytes of the values that v refers to, without v itself.
func referencedSize(v reflect.Value, depth int) (sum int64) {
	if depth > maxDepth {
		return 0
	}
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Type() == locationType {
			return 0
		}
		return int64(v.Elem().Type().Size()) + referencedSize(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			sum += referencedSize(v.Field(i), depth+1)
		}
	case reflect.Slice:
		sum = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if isFlat(v.Type().Elem()) {
			return sum
		}
		for i := range v.Len() {
			sum += referencedSize(v.Index(i), depth+1)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			sum += int64(entryWeight(v.Type())) + referencedSize(entries.Key(), depth+1) + referencedSize(entries.Value(), depth+1)
		}
	}
	return sum
}

// isFlat reports whether values of a type contain no references.
func isFlat(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 }
