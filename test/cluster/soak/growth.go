package soak

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Sample contains the measurements after a round.
type Sample struct {
	Seconds float64 // since the start of the test
	Life    int     // the number of starts of the agent so far
	Values  map[string]float64
}

// A Series is a measurement that is checked for growth. A Series may grow by the ratio Part and, in
// addition, by the amount Slack. By default, a Series measures the agent. A new agent starts with
// new values, so such a Series is checked during the life of one agent. If Node is set, the Series
// measures the node. Such a Series is compared between the first and the last agent, so that leaks of all ended agents add up. If Sum is
// set, the value is a sum that never decreases. For such a Series, the increase per minute is checked.
type Series struct {
	Name, Unit  string
	Part, Slack float64
	Node        bool
	Sum         bool
}

// allSeries contains the series that are checked.
var allSeries = []Series{
	{Name: "agent, PSS", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "shims, PSS", Unit: "MiB", Part: .1, Slack: 1},
	{Name: "agent, anonymous", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "shims, anonymous", Unit: "MiB", Part: .1, Slack: 1},
	{Name: "heap in use", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "goroutines", Slack: 5},
	{Name: "descriptors", Slack: 5},
	{Name: "processes", Node: true},
	{Name: "cgroups", Node: true},
	{Name: "mounts", Node: true},
	{Name: "links", Node: true},
	{Name: "files of the node", Slack: 3, Node: true},
	{Name: "database", Unit: "MiB", Part: .1, Slack: 2}, // with the write-ahead log, which grows to 2 MiB during the life of an agent
	{Name: "written", Unit: "MiB", Part: .5, Slack: 2, Sum: true},
}

// minSamples is the minimum number of samples of the last agent. With fewer samples, Growth returns an error. The first
// agent needs half as many samples.
const minSamples = 8

// minRestarts is the minimum number of ended agents. With fewer ended agents, their leftovers might
// be smaller than the normal variation of a series.
const minRestarts = 4

// Growth returns a message for each series that has grown too much. It compares the minimum of a series in the last samples with the
// median of the series in the first samples. The last samples are the last third of the last agent's samples. The first samples are the
// first third of the last agent's samples. For a series of the node, the first samples are all samples of the first agent. The comparison
// uses the minimum, because the minimum does not include resources that are used temporarily. Growth returns an error if there are too
// few samples or ended agents.
func Growth(samples []Sample, series []Series) (grown []string, err error) {
	if len(samples) == 0 {
		return nil, errors.New("no samples")
	}
	end := samples[len(samples)-1].Life
	first, last := samplesOf(samples, samples[0].Life), samplesOf(samples, end)
	switch ended := end - samples[0].Life; {
	case len(last) < minSamples:
		return nil, fmt.Errorf("%d samples of the last agent; at least %d are needed", len(last), minSamples)
	case len(first) < minSamples/2:
		return nil, fmt.Errorf("%d samples of the first agent; at least %d are needed", len(first), minSamples/2)
	case ended < minRestarts && slices.ContainsFunc(series, func(s Series) bool { return s.Node }):
		return nil, fmt.Errorf("%d agents were ended; at least %d are needed", ended, minRestarts)
	}
	third := len(last) / 3
	after := last[len(last)-third:]
	for _, s := range series {
		before := last[:third]
		if s.Node {
			before = first
		}
		was, is, what := medianOf(before, s.Name), sorted(after, s.Name)[0], s.Unit+" minimum at the end"
		if s.Sum {
			was, is, what = ratePerMinute(before, s.Name), ratePerMinute(after, s.Name), s.Unit+" per minute at the end"
		}
		if is > was*(1+s.Part)+s.Slack {
			grown = append(grown, fmt.Sprintf("%s: %.4g %s, %.4g before", s.Name, is, what, was))
		}
	}
	return grown, nil
}

// samplesOf returns the samples of one agent.
func samplesOf(samples []Sample, n int) (out []Sample) {
	for _, s := range samples {
		if s.Life == n {
			out = append(out, s)
		}
	}
	return out
}

// ratePerMinute returns the increase of a sum per minute.
func ratePerMinute(samples []Sample, name string) float64 {
	from, to := samples[0], samples[len(samples)-1]
	return (to.Values[name] - from.Values[name]) / (to.Seconds - from.Seconds) * 60
}

func medianOf(samples []Sample, name string) float64 {
	values := sorted(samples, name)
	return values[len(values)/2]
}

func sorted(samples []Sample, name string) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, s.Values[name])
	}
	slices.SortFunc(out, cmp.Compare)
	return out
}
