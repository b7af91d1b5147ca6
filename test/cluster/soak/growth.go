package soak

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Sample is what the node has after a round.
type Sample struct {
	Seconds float64 // since the beginning
	Life    int     // of the agent: how often it has been started
	Values  map[string]float64
}

// A Series is what is looked at. It may grow by Part of what it was, and by Slack: that of an agent
// while one agent lives, as it begins anew with each; that of the Node from before the first agent
// was ended to the end of the last one, so that what each end leaves behind adds up. Of a Sum,
// which counts up for ever, it is how much comes in a minute.
type Series struct {
	Name, Unit  string
	Part, Slack float64
	Node        bool
	Sum         bool
}

// all that is looked at.
var all = []Series{
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
	{Name: "database", Unit: "MiB", Part: .1, Slack: 2}, // with its log, which each agent begins anew and which grows to 2 MiB
	{Name: "written", Unit: "MiB", Part: .5, Slack: 2, Sum: true},
}

// least is how many samples of one life say something: of the last one; of the first half of them.
const least = 8

// restarts is how often an agent has to be ended, so that what that leaves behind is more than
// what a series may vary by.
const restarts = 4

// Growth says what has grown: the least of the last third of the last life's samples, where
// nothing is left but what stays, is more than the middle one of those before by more than may
// be. Before are the first third of that life, or for the Node the first life. One error a
// series; none too if there are too few samples or ends of agents, of which the error tells.
func Growth(samples []Sample, series []Series) (grown []string, err error) {
	if len(samples) == 0 {
		return nil, errors.New("no samples")
	}
	end := samples[len(samples)-1].Life
	first, last := life(samples, samples[0].Life), life(samples, end)
	switch ended := end - samples[0].Life; {
	case len(last) < least:
		return nil, fmt.Errorf("%d samples of the last agent; %d are needed to say something", len(last), least)
	case len(first) < least/2:
		return nil, fmt.Errorf("%d samples of the first agent; %d are needed to say something", len(first), least/2)
	case ended < restarts && slices.ContainsFunc(series, func(s Series) bool { return s.Node }):
		return nil, fmt.Errorf("an agent was ended %d times; %d are needed to say something", ended, restarts)
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

// life is the samples of one agent.
func life(samples []Sample, n int) (out []Sample) {
	for _, s := range samples {
		if s.Life == n {
			out = append(out, s)
		}
	}
	return out
}

// rate is by how much a sum rises in a minute.
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
