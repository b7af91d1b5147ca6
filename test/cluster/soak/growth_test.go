package soak

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// samples returns 30 samples of one series for each life of the agent. Each given function returns the values for one life.
func samples(lives ...func(i int) float64) (out []Sample) {
	for life, f := range lives {
		for i := range 30 {
			out = append(out, Sample{Seconds: float64(len(out)), Life: life, Values: map[string]float64{"x": f(i)}})
		}
	}
	return out
}

func TestGrowth(t *testing.T) {
	is := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	level := is(100)
	leaks := func(i int) float64 { return 100 + float64(i) }
	faster := func(i int) float64 { return float64(i*i) / 60 }
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
		"up and down":            {samples(func(i int) float64 { return 100 + float64(i%7)*10 }), Series{Slack: 1}, false},
		"steps once":             {samples(func(i int) float64 { return 100 + float64(i/20) }), Series{}, true},
		"one peak at the end":    {samples(func(i int) float64 { return 100 + float64(i/29)*50 }), Series{}, false},
		"leaked in another life": {samples(leaks, level), Series{}, false},
		"shrinks":                {samples(func(i int) float64 { return 100 - float64(i) }), Series{}, false},

		"counts up":              {samples(leaks), Series{Sum: true}, false},
		"counts up faster":       {samples(faster), Series{Sum: true, Part: .5}, true},
		"counts up, within part": {samples(faster), Series{Sum: true, Part: 10}, false},

		"node, level":                   {samples(level, level, level, level, level), Series{Node: true}, false},
		"node, one left by each end":    {samples(is(100), is(101), is(102), is(103), is(104)), Series{Node: true}, true},
		"node, one left by one end":     {samples(level, level, is(101), is(101), is(101)), Series{Node: true}, true},
		"node, as before in the end":    {samples(level, is(150), is(150), is(150), level), Series{Node: true}, false},
		"node, leaks in the last life":  {samples(level, level, level, level, leaks), Series{Node: true}, true},
		"node, less than slack":         {samples(is(100), is(101), is(102), is(103), is(104)), Series{Node: true, Slack: 4}, false},
		"agent, more with each new one": {samples(is(100), is(101), is(102), is(103), is(104)), Series{}, false},
	} {
		c.series.Name = "x"
		grown, err := Growth(c.samples, []Series{c.series})
		if err != nil || (len(grown) > 0) != c.grown {
			t.Errorf("%s: %q, %v", name, grown, err)
		}
	}
	for name, few := range map[string][]Sample{
		"none": nil, "of the only life": samples(level)[:minSamples-1], "of the last life": append(samples(level, level, level, level), Sample{Life: 4}),
		"of the first life": samples(level, level, level, level, level)[30-minSamples/2+1:], "ends of agents": samples(level, level, level, level),
	} {
		if grown, err := Growth(few, allSeries); err == nil || grown != nil {
			t.Errorf("too few %s: %q, %v", name, grown, err)
		}
	}
}

// TestPlot checks that the picture is valid XML with a line for each series.
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
