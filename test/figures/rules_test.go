package figures_test

import (
	"slices"
	"testing"

	"github.com/islet-edge/islet/test/figures"
)

// TestRules checks that Check reports three kinds of errors: rules without data that are not listed, listed rules that have data or do not
// exist, and active alerts.
func TestRules(t *testing.T) {
	up := map[string]string{}
	for _, page := range figures.Pages {
		up[page] = ""
	}
	control := figures.Rule{Active: 1}
	for _, x := range []struct {
		what    string
		got     figures.Rules
		without map[string]string
		wrong   []string
	}{
		{"all is well", figures.Rules{up, 9, map[string]figures.Rule{figures.Control: control, "a": {Samples: 1}, "b": {}, "alert c": {}, "pressure": {}}}, map[string]string{"b": "why"}, nil},
		{"a page is down", figures.Rules{map[string]string{"/metrics": "401", figures.Pages[1]: "", figures.Pages[2]: "", figures.Pages[3]: ""}, 9, map[string]figures.Rule{figures.Control: control}}, nil,
			[]string{"/metrics is not scraped: 401", "/metrics/slis is not scraped: "}},
		{"no data", figures.Rules{up, 9, map[string]figures.Rule{figures.Control: control, "a": {}}}, nil, []string{"a has no data"}},
		{"listed", figures.Rules{up, 9, map[string]figures.Rule{figures.Control: control, "a": {Samples: 2, Example: "x 1"}}}, map[string]string{"a": "why", "z": "why"},
			[]string{"z is in the list of rules without data, but does not exist", "a has the data x 1, but is in the list of rules without data: why"}},
		{"active", figures.Rules{up, 9, map[string]figures.Rule{figures.Control: {}, "alert a": {Active: 2, Example: "x 1"}}}, nil,
			[]string{"alert a: 2 are active, x 1", "alert control: 0 are active, "}},
		{"an error", figures.Rules{up, 9, map[string]figures.Rule{figures.Control: control, "a": {Samples: 1, Error: "bad"}}}, nil, []string{"a: bad"}},
	} {
		if wrong, _ := x.got.Check(x.without); !slices.Equal(wrong, x.wrong) {
			t.Errorf("%s: wrong is %q", x.what, wrong)
		}
	}
}
