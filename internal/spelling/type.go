package spelling

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// DescribeType describes a value of a wrong type, such as "must be a whole number, not string". It replaces the decoder's message, which
// names Go types.
func DescribeType(err *json.UnmarshalTypeError) string {
	want := err.Type
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	have, isNumber := strings.CutPrefix(err.Value, "number ") // in addition, the decoder gives the value of a number that does not fit
	name := "an object"
	switch want.Kind() {
	case reflect.String:
		name = "a string (in quotes)"
	case reflect.Bool:
		name = "true or false"
	case reflect.Slice, reflect.Array:
		name = "a list"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		name = "a whole number"
		if isNumber && !strings.ContainsAny(have, ".eE") {
			name += fmt.Sprintf(" of at most %d bits", want.Bits())
			if want.Kind() >= reflect.Uint && strings.HasPrefix(have, "-") {
				name = "a whole number of at least 0"
			}
		}
	case reflect.Float32, reflect.Float64:
		name = "a number"
	}
	return fmt.Sprintf("must be %s, not %s", name, have)
}
