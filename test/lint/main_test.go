package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	long, text := strings.Repeat("x", columns), `"`+strings.Repeat("x", columns)+`"`
	for name, c := range map[string]struct {
		path, body string
		want       string // end of the message, or "" for none
	}{
		"an unused init statement":         {"a.go", "if a = b(); c {\n}", "a.go:3: the condition does not use the init statement"},
		"an unrelated call":                {"a.go", "if f(); c {\n}", "a.go:3: the condition does not use the init statement"},
		"a call of what is compared":       {"a.go", "if r.next(); r.end {\n}", ""},
		"an unused one of an else":         {"a.go", "if c {\n} else if a := b(); d {\n_ = a\n}", "a.go:4: the condition does not use the init statement"},
		"a used one":                       {"a.go", "if a := b(); a > 0 {\n}", ""},
		"one of two is used":               {"a.go", "if a, err := b(); err != nil {\n_ = a\n}", ""},
		"a used field":                     {"a.go", "if x.a = b(); x.a {\n}", ""},
		"a used element":                   {"a.go", "if m[k] = b(); m[k] {\n}", ""},
		"a long line of a test":            {"a_test.go", "f(" + long + ")", "a_test.go:3: line is over 140 columns"},
		"a long row of a table":            {"a_test.go", "_ = []string{\n" + long + ",\n}", ""},
		"a long text":                      {"a_test.go", "f(" + text + ")", ""},
		"a long line that revive looks at": {"a.go", "f(" + long + ")", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := check(c.path, []byte("package a\nfunc _() {\n"+c.body+"\n}\n"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("violations %q, want %q", got, c.want)
			}
		})
	}
}
