package figures_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/figures"
)

// TestCompare checks that Compare reports differences of names, types and labels, samples outside their family, and missing metrics.
func TestCompare(t *testing.T) {
	known := figures.Documented("| page | name | type | labels | stability |\n|---|---|---|---|---|\n| /metrics | `a_total` | counter | x, y | ALPHA |\n| /metrics | `h_seconds` | histogram |  | BETA |\n| /metrics/slis | `a_total` | gauge |  | - |\nsomething `else`\n")
	want := []figures.Family{
		{"/metrics", "a_total", "counter", "x,y"}, {"/metrics", "h_seconds", "histogram", ""}, {"/metrics/slis", "a_total", "gauge", ""},
	}
	if !slices.Equal(known, want) {
		t.Fatalf("documented: %v", known)
	}
	const histogram = "# HELP h_seconds {help}\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"1\"} 0\nh_seconds_bucket{le=\"+Inf\"} 1\nh_seconds_sum 7\nh_seconds_count 1\n"
	const slis, plain = "# TYPE a_total gauge\na_total 1\n", "# TYPE a_total counter\na_total{y=\"a\\\"},z=\\\\\",x=\"\"} 1 1000\n"
	for what, x := range map[string]struct {
		metrics, slis string
		wrong         []string // a part of each message
		unseen        string
	}{
		"as documented": {plain + histogram + "# TYPE go_goroutines gauge\ngo_goroutines 7\n", slis, nil, ""},
		"nothing":       {"", "", nil, "/metrics a_total,/metrics h_seconds,/metrics/slis a_total"},
		"another type":  {strings.Replace(plain, "counter", "gauge", 1) + histogram, slis, []string{"a_total: a gauge of {x,y}, documented as a counter"}, ""},
		"a label more":  {plain + "a_total{x=\"1\",y=\"\",z=\"\"} 2\n" + histogram, slis, []string{"a counter of {x,y,z}, documented as a counter of {x,y}"}, ""},
		"a label less":  {strings.Replace(plain, ",x=\"\"", "", 1) + histogram, slis, []string{"{y}"}, ""},
		"a name more":   {plain + histogram, slis + "# TYPE new gauge\nnew 1\n", []string{"/metrics/slis new: a gauge of {}, which is not documented"}, ""},
		"another page":  {plain + histogram, slis + histogram, []string{"/metrics/slis h_seconds"}, ""},
		"of no family":  {plain + "b_total 1\n" + histogram, slis, []string{"a line of b_total in the family a_total"}, "/metrics h_seconds"},
	} {
		wrong, unseen := figures.Compare(known, map[string]string{"/metrics": x.metrics, "/metrics/slis": x.slis})
		ok := len(wrong) == len(x.wrong)
		for i := range min(len(wrong), len(x.wrong)) {
			ok = ok && strings.Contains(wrong[i], x.wrong[i])
		}
		if !ok || strings.Join(unseen, ",") != x.unseen {
			t.Errorf("%s: wrong %q, unseen %q; want %q, %s", what, wrong, unseen, x.wrong, x.unseen)
		}
	}
}
