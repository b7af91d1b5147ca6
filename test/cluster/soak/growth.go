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
	Life    int     // number of starts of the agent so far
	Values  map[string]float64
}

// A Series is a measurement that is checked for growth. It may grow by the ratio Part, and by Slack. A series of the agent is checked
// during the life of one agent, because each agent starts with new resources. A series of the Node is checked from before the end of the
// first agent until the end of the last agent, so that the leftovers of all ended agents add up. A Sum always increases, so its increase
// per minute is checked.
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
	{Name: "heap in use", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "goroutines", Slack: 5},
	{Name: "descriptors", Slack: 5},
	{Name: "processes", Node: true},
	{Name: "cgroups", Node: true},
	{Name: "mounts", Node: true},
	{Name: "links", Node: true},
	{Name: "files of the node", Slack: 3, Node: true},
	{Name: "database", Unit: "MiB", Part: .1, Slack: 2}, // includes the WAL, which each agent starts again and which grows to 2 MiB
	{Name: "written", Unit: "MiB", Part: .5, Slack: 2, Sum: true},
}

// least is the minimum number of samples of the last agent. Half of it is the minimum number of samples of the first agent.
const least = 8

// restarts is the minimum number of ended agents for a result, so that their leftovers exceed the variation of a series.
const restarts = 4

// Growth returns an error for each series that has grown too much. It compares the minimum of the last third of the last agent's samples
// with the median of earlier samples. The minimum excludes temporary usage. The earlier samples are the first third of the last agent's
// samples, or for a series of the Node the first agent's samples. If there are too few samples or ended agents, it returns only an error
// that reports this.
func Growth(samples []Sample, series []Series) (grown []string, err error) {
	if len(samples) == 0 {
		return nil, errors.New("no samples")
	}
	end := samples[len(samples)-1].Life
	first, last := life(samples, samples[0].Life), life(samples, end)
	switch ended := end - samples[0].Life; {
	case len(last) < least:
		return nil, fmt.Errorf("%d samples of the last agent; %d are needed for a result", len(last), least)
	case len(first) < least/2:
		return nil, fmt.Errorf("%d samples of the first agent; %d are needed for a result", len(first), least/2)
	case ended < restarts && slices.ContainsFunc(series, func(s Series) bool { return s.Node }):
		return nil, fmt.Errorf("an agent was ended %d times; %d are needed for a result", ended, restarts)
	}
	third := len(last) / 3
	after := last[len(last)-third:]
	for _, s := range series {
		before := last[:third]
		if s.Node {
			before = first
		}
		was, is, what := middle(before, s.Name), sorted(after, s.Name)[0], s.Unit+" at least in the end"
		if s.Sum {
			was, is, what = rate(before, s.Name), rate(after, s.Name), s.Unit+" a minute in the end"
		}
		if is > was*(1+s.Part)+s.Slack {
			grown = append(grown, fmt.Sprintf("%s: %.4g %s, %.4g before", s.Name, is, what, was))
		}
	}
	return grown, nil
}

// life returns the samples of one agent.
func life(samples []Sample, n int) (out []Sample) {
	for _, s := range samples {
		if s.Life == n {
			out = append(out, s)
		}
	}
	return out
}

// rate returns the increase of a sum per minute.
func rate(samples []Sample, name string) float64 {
	from, to := samples[0], samples[len(samples)-1]
	return (to.Values[name] - from.Values[name]) / (to.Seconds - from.Seconds) * 60
}

func middle(samples []Sample, name string) float64 {
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
