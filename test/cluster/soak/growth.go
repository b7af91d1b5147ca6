package soak

import (
	"cmp"
	"fmt"
	"slices"
)

// A Sample is what the node has after a round.
type Sample struct {
	Seconds float64 // since the beginning
	Life    int     // of the agent: how often it has been started
	Values  map[string]float64
}

// A Series is what is looked at. It may grow by Part of what it was, and by Slack.
type Series struct {
	Name, Unit  string
	Part, Slack float64
	Sum         bool // counts up for ever: it is drawn, not judged
}

// all that is looked at.
var all = []Series{
	{Name: "agent, PSS", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "shims, PSS", Unit: "MiB", Part: .1, Slack: 1},
	{Name: "heap in use", Unit: "MiB", Part: .1, Slack: 2},
	{Name: "goroutines", Slack: 5},
	{Name: "descriptors", Slack: 5},
	{Name: "processes"},
	{Name: "cgroups"},
	{Name: "mounts"},
	{Name: "links"},
	{Name: "files of the node", Part: .02, Slack: 5},
	{Name: "database", Unit: "MiB", Part: .1, Slack: 1},
	{Name: "written", Unit: "MiB", Sum: true},
}

// least is how many samples of one life say something.
const least = 8

// Growth says what of the last life's samples has grown: the least of the last third, where
// nothing is left but what stays, is more than the middle one of the first third, by more than
// may be. One error a series; none too if there are too few samples, of which the error tells.
func Growth(samples []Sample, series []Series) (grown []string, err error) {
	if len(samples) > 0 {
		last := samples[len(samples)-1].Life
		samples = samples[slices.IndexFunc(samples, func(s Sample) bool { return s.Life == last }):]
	}
	if len(samples) < least {
		return nil, fmt.Errorf("%d samples of the last agent; %d are needed to say something", len(samples), least)
	}
	third := len(samples) / 3
	for _, s := range series {
		if s.Sum {
			continue
		}
		before, after := sorted(samples[:third], s.Name), sorted(samples[len(samples)-third:], s.Name)
		was, is := before[len(before)/2], after[0]
		if is > was*(1+s.Part)+s.Slack {
			grown = append(grown, fmt.Sprintf("%s: %.4g %s at least in the last third, %.4g in the first", s.Name, is, s.Unit, was))
		}
	}
	return grown, nil
}

func sorted(samples []Sample, name string) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, s.Values[name])
	}
	slices.SortFunc(out, cmp.Compare)
	return out
}
