package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/release"
)

// A Report is the state of a node, whose signature was verified.
type Report struct {
	Key   string // ID of the key that has signed it
	State *api.BundleState
}

// A Tally counts the nodes of a ring that have reported.
type Tally struct {
	Ring  string // empty for nodes that belong to no ring
	Nodes int
	// Succeeded counts nodes that run the version or a newer one, and Failed those on which the version has failed, or from which a person
	// has returned. A node counts once. The others have not tried the version, or are trying it.
	Succeeded, Failed int
}

// A Count is the outcome of a rollout as the reports show it.
type Count struct {
	Rings   []Tally // in the order of the plan; the last one is of nodes outside
	Failed  []NodeFailure
	Twins   []string // names that the reports of several keys have: none of these nodes counts as a success
	Silent  []string // nodes whose reports say nothing about updates, because they follow no index
	Reports int
}

// A NodeFailure is a node on which the version has failed.
type NodeFailure struct{ Node, Ring, Why string }

// Count counts the reports. Several reports of one key count as one node: the newest one decides about its ring and version, and a failure
// in any of them counts.
func (x *Index) Count(reports []Report) Count {
	out := Count{Rings: make([]Tally, len(x.Rings)+1), Reports: len(reports)}
	for i := range x.Rings {
		out.Rings[i].Ring = x.Rings[i].Name
	}
	sorted := slices.SortedStableFunc(slices.Values(reports), func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.State.Time.Compare(b.State.Time))
	})
	names := map[string]int{}
	var nodes [][]Report
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Key == sorted[0].Key {
			n++
		}
		nodes = append(nodes, sorted[:n])
		names[sorted[n-1].State.Node]++
		sorted = sorted[n:]
	}
	for name, n := range names {
		if n > 1 {
			out.Twins = append(out.Twins, name)
		}
	}
	for _, list := range nodes {
		x.countNode(&out, list, names)
	}
	slices.Sort(out.Twins)
	slices.Sort(out.Silent)
	slices.SortFunc(out.Failed, func(a, b NodeFailure) int { return cmp.Or(cmp.Compare(a.Ring, b.Ring), cmp.Compare(a.Node, b.Node)) })
	return out
}

// countNode counts the reports of one key, of which the last is the newest.
func (x *Index) countNode(out *Count, list []Report, names map[string]int) {
	s := list[len(list)-1].State
	failed, why := false, ""
	for _, r := range list {
		if f, w := x.hasFailed(r.State.Update); f {
			failed, why = true, w
		}
	}
	if s.Update == nil && !failed {
		out.Silent = append(out.Silent, s.Node)
		return
	}
	i := len(x.Rings)
	if s.Update != nil {
		if at := x.ringOf(s.Node, s.Update.Labels); at >= 0 {
			i = at
		}
	}
	t := &out.Rings[i]
	t.Nodes++
	switch {
	case failed:
		t.Failed++
		out.Failed = append(out.Failed, NodeFailure{s.Node, t.Ring, why})
	case s.Update.OnTrial || names[s.Node] > 1:
	default:
		if newer, err := release.IsNewer(x.Version, s.Versions.Islet); err == nil && !newer {
			t.Succeeded++
		}
	}
}

// hasFailed reports whether the version of the index has failed on a node, and why.
func (x *Index) hasFailed(u *api.UpdateState) (failed bool, why string) {
	if u == nil {
		return false, ""
	}
	id := ""
	if a := x.archive(u.Arch); a != nil {
		id = release.ProgramID(x.Version, a.SHA512)
	}
	for _, t := range u.Trials {
		if t.ID == id && (t.Result == api.UpdateFailed || t.Result == api.UpdateUnfit) {
			return true, cmp.Or(t.Why, t.Result)
		}
	}
	if slices.Contains(u.Refused, id) {
		return true, "it has failed earlier"
	}
	if u.Left != "" {
		if newer, err := release.IsNewer(x.Version, u.Left); err == nil && !newer {
			return true, fmt.Sprintf("a person has returned from %s", u.Left)
		}
	}
	return false, ""
}

// Advance returns the plan after a look at the count, and what has changed. It raises the numbers of failures. If a ring has too many of
// them, it pauses the rollout. Otherwise it opens at most one ring: the next one, if the last open one has enough successes and its soak
// has passed. If isKnown is false, the keys of the reports are not known, and Advance opens only the first ring.
func (x *Index) Advance(c Count, isKnown bool, now time.Time) (Plan, []string) {
	p := x.Plan
	p.Rings = slices.Clone(p.Rings)
	var changes []string
	last := -1 // the last open ring
	for i := range p.Rings {
		r := &p.Rings[i]
		if n := min(c.Rings[i].Failed, maxNodes); n > r.Failed {
			changes = append(changes, fmt.Sprintf("ring %s: %s failed", r.Name, api.Pluralize(n, "node")))
			r.Failed = n
		}
		if r.Failed > r.MaxFailed && p.Paused == "" {
			p.Paused = fmt.Sprintf("ring %s: %s failed, at most %d may fail", r.Name, api.Pluralize(r.Failed, "node"), r.MaxFailed)
			changes = append(changes, "paused: "+p.Paused)
		}
		if !r.Opened.IsZero() {
			last = i
		}
	}
	if p.Paused != "" || last+1 == len(p.Rings) || last >= 0 && (!isKnown || p.Rings[last].holds(c.Rings[last], now) != "") {
		return p, changes
	}
	next := &p.Rings[last+1]
	next.Opened = now.UTC().Truncate(time.Second)
	return p, append(changes, fmt.Sprintf("ring %s: opened", next.Name))
}

// holds returns why the ring after an open one does not open yet, or "".
func (r *Ring) holds(t Tally, now time.Time) string {
	if t.Succeeded < r.MinSucceeded {
		return fmt.Sprintf("%d of %d nodes have succeeded", t.Succeeded, r.MinSucceeded)
	}
	if soaked := r.start().Add(r.Jitter.Duration + r.Soak.Duration); now.Before(soaked) {
		return "until " + formatTime(soaked)
	}
	return ""
}

// Holds returns why the next ring does not open yet, or "" if nothing but Advance is missing, or if all rings are open.
func (x *Index) Holds(c Count, now time.Time) string {
	for i := len(x.Rings) - 1; i >= 0; i-- {
		if r := &x.Rings[i]; !r.Opened.IsZero() && i+1 < len(x.Rings) {
			return r.holds(c.Rings[i], now)
		} else if !r.Opened.IsZero() {
			return ""
		}
	}
	return ""
}

// Resume returns the plan without its pause. The failures until now are accepted: a ring's MaxFailed is at least its number of failures.
func (x *Index) Resume() Plan {
	p := x.Plan
	p.Paused = ""
	p.Rings = slices.Clone(p.Rings)
	for i := range p.Rings {
		p.Rings[i].MaxFailed = max(p.Rings[i].MaxFailed, p.Rings[i].Failed)
	}
	return p
}
