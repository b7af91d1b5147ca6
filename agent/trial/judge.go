package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Facts are how the node is at a moment.
type Facts struct {
	Link     string   `json:"link,omitempty"`     // why the API server cannot be reached; empty: it can, or there is none
	Node     string   `json:"node,omitempty"`     // why the node is not Ready; empty: it is
	Reach    string   `json:"reach,omitempty"`    // why the kubelet API cannot be reached; empty: it can
	Pressure []string `json:"pressure,omitempty"` // conditions of the node that hold, sorted
	// Pods are those that are wanted and have not ended, by UID: whether each is ready.
	Pods map[string]bool `json:"pods,omitempty"`
	// Rejected are pods, by UID, that the node itself ended or did not admit, with why.
	Rejected map[string]string `json:"rejected,omitempty"`

	// Of a trial: Held are the pods that only it keeps from ending, as nothing names them any
	// more, and Known all that the agent knows, also those that end.
	Held  []string        `json:"-"`
	Known map[string]bool `json:"-"`
}

// best is how well a node was at either of two moments, of the pods that are there at the later
// one.
func best(earlier, later Facts) Facts {
	for _, c := range []struct {
		was string
		is  *string
	}{{earlier.Link, &later.Link}, {earlier.Node, &later.Node}, {earlier.Reach, &later.Reach}} {
		if c.was == "" {
			*c.is = ""
		}
	}
	later.Pressure = slices.DeleteFunc(slices.Clone(later.Pressure), func(p string) bool { return !slices.Contains(earlier.Pressure, p) })
	pods := maps.Clone(later.Pods)
	for uid := range pods {
		pods[uid] = pods[uid] || earlier.Pods[uid]
	}
	later.Pods = pods
	return later
}

// A Verdict is what follows from the facts.
type Verdict int

// The verdicts.
const (
	Waiting Verdict = iota // it is not decided yet
	Good
	Bad
)

// A Judge compares the node with what it was before the trial.
type Judge struct {
	Before     Facts
	HealthyFor time.Duration // without a break

	since time.Time       // it is as well as before; zero: it is not
	known map[string]bool // all that were
}

// Look takes the facts of a moment, of a clock that only goes forward. Why says what is
// worse than before; of a good verdict nothing is.
func (j *Judge) Look(now time.Time, f Facts) (v Verdict, why string) {
	if j.known == nil {
		j.known = map[string]bool{}
	}
	maps.Copy(j.known, f.Known)
	if fatal := j.fatal(f); fatal != "" {
		return Bad, fatal
	}
	if why = j.worse(f); why != "" {
		j.since = time.Time{}
		return Waiting, why
	}
	if j.since.IsZero() {
		j.since = now
	}
	if now.Sub(j.since) >= j.HealthyFor {
		return Good, ""
	}
	return Waiting, fmt.Sprintf("as well as before for %s of %s", now.Sub(j.since).Round(time.Second), j.HealthyFor)
}

// fatal is what must not go on: pods would be lost.
func (j *Judge) fatal(f Facts) string {
	for _, p := range f.Pressure {
		if !slices.Contains(j.Before.Pressure, p) {
			return "the node has " + p + ", which it did not have before: pods would be evicted"
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(f.Rejected)) {
		_, ran := j.Before.Pods[uid]
		if _, before := j.Before.Rejected[uid]; ran && !before {
			return fmt.Sprintf("pod %s, which ran before, was ended by the node: %s", uid, f.Rejected[uid])
		}
	}
	return ""
}

// Outage reports whether nothing is worse than before but what may have another cause: the way to
// the API server is gone, or pods are that somebody may have removed meanwhile.
func (j *Judge) Outage(f Facts) bool {
	gone := j.Before.Link == "" && f.Link != ""
	f.Link = ""
	return len(j.ill(f)) == 0 && (gone || len(j.lost(f)) > 0)
}

// worse says what is not as well as before.
func (j *Judge) worse(f Facts) string { return strings.Join(append(j.ill(f), j.lost(f)...), "; ") }

// lost says which pods are not there any more. An agent that was not able to find them would say
// the same.
func (j *Judge) lost(f Facts) (all []string) {
	held, unknown := 0, 0
	for uid := range j.Before.Pods {
		switch {
		case slices.Contains(f.Held, uid):
			held++
		case !j.known[uid]:
			unknown++
		}
	}
	if held > 0 {
		all = append(all, fmt.Sprintf("%d pods that ran would end, as nothing names them any more", held))
	}
	if unknown > 0 {
		all = append(all, fmt.Sprintf("%d pods that ran are not known any more", unknown))
	}
	return all
}

// ill says what is there, but not as well as before.
func (j *Judge) ill(f Facts) (all []string) {
	for _, c := range []struct{ what, before, now string }{
		{"the API server cannot be reached", j.Before.Link, f.Link},
		{"the node is not Ready", j.Before.Node, f.Node},
		{"the kubelet API cannot be reached", j.Before.Reach, f.Reach},
	} {
		if c.before == "" && c.now != "" {
			all = append(all, c.what+": "+c.now)
		}
	}
	down := 0
	for uid, ready := range j.Before.Pods {
		if now, there := f.Pods[uid]; ready && there && !now {
			down++
		}
	}
	if down > 0 {
		all = append(all, fmt.Sprintf("%d pods are not ready that were", down))
	}
	return all
}
