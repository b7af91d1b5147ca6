package rollout

import (
	"cmp"
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
	Nodes int `json:"nodes"`
	// Succeeded counts nodes that run the version or a newer one, and Failed counts nodes on which the version has failed, or from which a
	// person has returned. A node counts once. The others have not tried the version, or are trying it.
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
}

// A Count is the outcome of a rollout as the reports show it.
type Count struct {
	Rings []Tally  // in the order of the plan; the last one is of nodes outside
	Notes []string // about nodes, sorted: failures first
}

// Count counts the reports. Several reports of one key count as one node: the newest one decides about its ring and version, and a failure
// in any of them counts. If several keys have the same name, none of them counts as a success.
func (x *Index) Count(reports []Report) Count {
	out := Count{Rings: make([]Tally, len(x.Rings)+1)}
	newest := map[string]*api.BundleState{} // by key
	failures := map[string]string{}         // why the version has failed, by key
	for _, r := range reports {
		if s := newest[r.Key]; s == nil || s.Time.Before(r.State.Time) {
			newest[r.Key] = r.State
		}
		if why := x.failure(r.State.Update); why != "" {
			failures[r.Key] = why
		}
	}
	names := map[string]int{}
	for _, s := range newest {
		names[s.Node]++
	}
	for key, s := range newest {
		why := failures[key]
		if s.Update == nil && why == "" {
			out.Notes = append(out.Notes, "note: "+s.Node+" follows no index")
			continue
		}
		i, ring := len(x.Rings), "no ring"
		if s.Update != nil {
			if at := x.ringOf(s.Node, s.Update.Labels); at >= 0 {
				i, ring = at, x.Rings[at].Name
			}
		}
		t := &out.Rings[i]
		t.Nodes++
		newer, err := release.IsNewer(x.Version, s.Versions.Islet)
		switch {
		case why != "":
			t.Failed++
			out.Notes = append(out.Notes, "failed: "+s.Node+" ("+ring+"): "+why)
		case names[s.Node] > 1:
			out.Notes = append(out.Notes, "note: "+s.Node+" is the name of several keys")
		case err == nil && !newer && !s.Update.OnTrial:
			t.Succeeded++
		default:
			if why := x.untested(s.Update); why != "" {
				out.Notes = append(out.Notes, "note: "+s.Node+" ("+ring+"): a self-test had no result: "+why)
			}
		}
	}
	slices.Sort(out.Notes)
	out.Notes = slices.Compact(out.Notes)
	return out
}

// failure returns why the version of the index has failed on a node, or "".
func (x *Index) failure(u *api.UpdateState) string {
	if u == nil {
		return ""
	}
	if a := x.archive(u.Arch); a != nil {
		id := release.ProgramID(x.Version, a.SHA512)
		for i := range u.Trials {
			if t := &u.Trials[i]; t.ID == id && api.IsUpdateFailure(t.Result) {
				return cmp.Or(t.Why, t.Result)
			}
		}
		if slices.Contains(u.Refused, id) {
			return "it has failed earlier"
		}
	}
	if newer, err := release.IsNewer(x.Version, u.Left); err == nil && !newer {
		return "a person has returned from " + u.Left
	}
	return ""
}

// untested returns why the last self-test of the version had no result on a node, or "" if it had one.
func (x *Index) untested(u *api.UpdateState) (why string) {
	a := x.archive(u.Arch)
	for i := range u.Trials {
		if t := &u.Trials[i]; a != nil && t.ID == release.ProgramID(x.Version, a.SHA512) {
			why = ""
			if t.Result == api.UpdateUntested {
				why = cmp.Or(t.Why, t.Result)
			}
		}
	}
	return why
}

// Raise returns the plan with the numbers of failures in the count, and descriptions of the changes. If isKnown is false, the reports may
// be forged, because their keys were not checked. Raise then changes nothing.
func (x *Index) Raise(c Count, isKnown bool) (p Plan, changes []string) {
	p = x.Plan
	p.Rings = slices.Clone(p.Rings)
	for i := range p.Rings {
		r := &p.Rings[i]
		if n := min(c.Rings[i].Failed, maxNodes); isKnown && n > r.Failed {
			changes = append(changes, "ring "+r.Name+": "+api.Pluralize(n, "node")+" failed")
			r.Failed = n
		}
	}
	return p, changes
}

// Advance returns the plan that follows from the count, descriptions of the changes, and the reason why the next ring does not open yet. It
// raises the numbers of failures: see Raise. If a ring has too many failures, Advance pauses the rollout. Otherwise it opens at most one
// ring: the next one, if the last open one has enough successes and its soak has passed. If isKnown is false, no ring opens.
func (x *Index) Advance(c Count, isKnown bool, now time.Time) (p Plan, changes []string, waits string) {
	p, changes = x.Raise(c, isKnown)
	open := 0 // number of open rings
	for i := range p.Rings {
		r := &p.Rings[i]
		if r.Failed > r.MaxFailed && p.Paused == "" {
			p.Paused = "ring " + r.Name + ": " + api.Pluralize(r.Failed, "node") + " failed, which is too many"
			changes = append(changes, "paused")
		}
		if !r.Opened.IsZero() {
			open++
		}
	}
	if p.Paused != "" || open == len(p.Rings) {
		return p, changes, ""
	}
	if !isKnown {
		waits = "the keys of the nodes are not given"
	} else if open > 0 {
		waits = p.Rings[open-1].holds(c.Rings[open-1], now)
	}
	if waits == "" {
		p.Rings[open].Opened = now.UTC().Truncate(time.Second)
		changes = append(changes, "ring "+p.Rings[open].Name+": opened")
	}
	return p, changes, waits
}

// holds returns why the ring after an open one does not open yet, or "".
func (r *Ring) holds(t Tally, now time.Time) string {
	if n := r.MinSucceeded - t.Succeeded; n > 0 {
		return api.Pluralize(n, "more node") + " must succeed in ring " + r.Name
	}
	if soaked := r.start().Add(r.Jitter.Duration + r.Soak.Duration); now.Before(soaked) {
		return "until " + formatTime(soaked)
	}
	return ""
}

// Resume returns the plan without its pause, and descriptions of the changes. It accepts the present failures: it raises each ring's
// MaxFailed to at least the ring's number of failures in the index and, if isKnown is true, in the count.
func (x *Index) Resume(c Count, isKnown bool) (p Plan, changes []string) {
	p, changes = x.Raise(c, isKnown)
	p.Paused = ""
	for i := range p.Rings {
		p.Rings[i].MaxFailed = max(p.Rings[i].MaxFailed, p.Rings[i].Failed)
	}
	return p, append(changes, "resumed")
}
