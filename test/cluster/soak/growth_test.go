package soak

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// samples of one series, the value of each life by its own function.
func samples(lives ...func(i int) float64) (out []Sample) {
	for life, f := range lives {
		for i := range 30 {
			out = append(out, Sample{Seconds: float64(len(out)), Life: life, Values: map[string]float64{"x": f(i)}})
		}
	}
	return out
}

func TestGrowth(t *testing.T) {
	level := func(int) float64 { return 100 }
	leaks := func(i int) float64 { return 100 + float64(i) }
	for name, c := range map[string]struct {
		samples []Sample
		series  Series
		grown   bool
	}{
		"level":                  {samples(level), Series{}, false},
		"leaks":                  {samples(leaks), Series{}, true},
		"leaks, less than slack": {samples(leaks), Series{Slack: 16}, false},
		"leaks, more than slack": {samples(leaks), Series{Slack: 14}, true},
		"leaks, less than part":  {samples(leaks), Series{Part: .16}, false},
		"counts up":              {samples(leaks), Series{Sum: true}, false},
		"up and down":            {samples(func(i int) float64 { return 100 + float64(i%7)*10 }), Series{Slack: 1}, false},
		"steps once":             {samples(func(i int) float64 { return 100 + float64(i/20) }), Series{}, true},
		"one peak at the end":    {samples(func(i int) float64 { return 100 + float64(i/29)*50 }), Series{}, false},
		"leaked in another life": {samples(leaks, level), Series{}, false},
		"shrinks":                {samples(func(i int) float64 { return 100 - float64(i) }), Series{}, false},
	} {
		c.series.Name = "x"
		grown, err := Growth(c.samples, []Series{c.series})
		if err != nil || (len(grown) > 0) != c.grown {
			t.Errorf("%s: %q, %v", name, grown, err)
		}
	}
	for _, few := range [][]Sample{nil, samples(level)[:least-1], append(samples(level), Sample{Life: 1})} {
		if grown, err := Growth(few, all); err == nil || grown != nil {
			t.Errorf("of %d samples: %q, %v", len(few), grown, err)
		}
	}
}

// TestPlot: the picture is XML, with a line for each series.
func TestPlot(t *testing.T) {
	var b strings.Builder
	Plot(&b, samples(func(i int) float64 { return float64(i) }, func(int) float64 { return 3 }), []Series{{Name: "x", Unit: "<MiB>"}, {Name: "not there"}})
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, &b)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d lines in\n%s", lines, &b)
	}
}
