package spelling_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/islet-edge/islet/internal/spelling"
)

func TestDescribeType(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":1}`:           "must be a string (in quotes), not number",
		`{"on":"yes"}`:         "must be true or false, not string",
		`{"count":"many"}`:     "must be a whole number, not string",
		`{"count":1.5}`:        "must be a whole number, not 1.5",
		`{"count":9e9}`:        "must be a whole number, not 9e9",
		`{"count":3000000000}`: "must be a whole number of at most 32 bits, not 3000000000",
		`{"small":-1}`:         "must be a whole number of at least 0, not -1",
		`{"small":true}`:       "must be a whole number, not bool",
		`{"ratio":"half"}`:     "must be a number, not string",
		`{"list":"a"}`:         "must be a list, not string",
		`{"map":[]}`:           "must be an object, not array",
		`{"inner":"few"}`:      "must be an object, not string",
	} {
		var v struct {
			Name  string
			On    bool
			Count *int32
			Small uint8
			Ratio float32
			List  []string
			Map   map[string]string
			Inner struct{ A string }
		}
		var wrong *json.UnmarshalTypeError
		if err := json.Unmarshal([]byte(text), &v); !errors.As(err, &wrong) {
			t.Fatalf("%s: %v", text, err)
		}
		if got := spelling.DescribeType(wrong); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
