package trial

import (
	"cmp"
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

	// Names holds the namespace and name of each of Pods, for messages.
	Names map[string]string `json:"-"`
	// Probes holds the kind of readiness probe of each of Pods that has one: see ProbeNetwork.
	Probes map[string]string `json:"-"`
	// Of a trial: Held are the pods that only it keeps from ending, as nothing names them any
	// more, and Known all that the agent knows, also those that end.
	Held  []string        `json:"-"`
	Known map[string]bool `json:"-"`
}

// The kinds of readiness probes: over the network, or a command in the container.
const (
	ProbeNetwork = "network"
	ProbeExec    = "exec"
)

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
	later.Pressure = slices.DeleteFunc(slices.Clone(later.Pressure),
		func(p string) bool { return !slices.Contains(earlier.Pressure, p) })
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
//
// A pod may make itself unready, or fill the disk, to keep the node from an update. So pods alone
// cannot fail a trial for ever. After a first trial in which nothing but pods was worse, a second one
// decides without these, and a third one without any, as long as another pod with such a readiness
// probe is ready: where none is, what is tried is the more likely cause, as one that reaches no pod.
type Judge struct {
	Before     Facts
	HealthyFor time.Duration // without a break
	Despite    bool          // no pod counts, nor a pressure
	Any        bool          // no pod counts while another one is proof
	Excused    []string      // pods by UID, and pressures, that do not count while another pod is proof
	Limits     bool          // what is tried says by which limits there is a pressure

	since time.Time       // it is as well as before; zero: it is not
	known map[string]bool // all that were
	up    map[string]bool // pods that were ready during the trial
	fell  map[string]bool // and then were not
}

// Judge is that of the trial that is under way.
func (r *Record) Judge(healthyFor time.Duration, limits bool) Judge {
	j := Judge{Before: r.Trial.Before, HealthyFor: healthyFor, Limits: limits, Despite: r.Assigned.Despite}
	if v := r.Vetoed; v != nil {
		j.Excused, j.Any = v.By, v.Trials >= Attempts-1
	}
	return j
}

// Look takes the facts of a moment, of a clock that only goes forward. Why says what is
// worse than before; of a good verdict nothing is.
func (j *Judge) Look(now time.Time, f Facts) (v Verdict, why string) {
	if j.known == nil {
		j.known, j.up, j.fell = map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	maps.Copy(j.known, f.Known)
	for uid, ready := range f.Pods {
		j.fell[uid] = j.fell[uid] || j.up[uid] && !ready
		j.up[uid] = j.up[uid] || ready
	}
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
	for _, p := range j.pressures(f) {
		if !j.excused(p, f) {
			return "the node has " + p + ", which it did not have before: pods would be evicted"
		}
	}
	return j.rejected(f)
}

// rejected says which pod is lost.
func (j *Judge) rejected(f Facts) string {
	for _, uid := range slices.Sorted(maps.Keys(f.Rejected)) {
		_, ran := j.Before.Pods[uid]
		if _, before := j.Before.Rejected[uid]; ran && !before {
			return fmt.Sprintf("pod %s, which ran before, was ended by the node: %s", uid, f.Rejected[uid])
		}
	}
	return ""
}

// pressures are those that the node did not have before.
func (j *Judge) pressures(f Facts) []string {
	return slices.DeleteFunc(slices.Clone(f.Pressure), func(p string) bool { return slices.Contains(j.Before.Pressure, p) })
}

// excused reports whether a pod, or a pressure, does not count.
func (j *Judge) excused(name string, f Facts) bool {
	if _, pod := j.Before.Pods[name]; !pod && j.Limits {
		return false
	}
	return j.Despite || (j.Any || slices.Contains(j.Excused, name)) && j.proof(name, f)
}

// proof reports whether what is tried cannot be why a pod is not ready: another pod with such a probe
// is, or any with a probe where it has none or one by a command. A pressure needs none.
func (j *Judge) proof(name string, f Facts) bool {
	if _, pod := j.Before.Pods[name]; !pod {
		return true
	}
	for uid, ready := range f.Pods {
		kind := f.Probes[uid]
		if ready && kind != "" && (kind == ProbeNetwork || f.Probes[name] != ProbeNetwork) {
			return true
		}
	}
	return false
}

// Blame are the pods, by UID, and the pressures that alone keep the trial from going well, sorted: those
// that are not well, and the pods that were ready in it and then were not. It is empty if something
// else is worse than before, or what is tried may be why one of them is not ready.
func (j *Judge) Blame(f Facts) (out []string) {
	if len(j.apart(f))+len(j.lost(f)) > 0 || j.rejected(f) != "" {
		return nil
	}
	if !j.Limits {
		out = j.pressures(f)
	}
	for uid, ready := range j.Before.Pods {
		now, there := f.Pods[uid]
		if !ready || !there || now && !j.fell[uid] {
			continue
		}
		if !now && !j.proof(uid, f) {
			return nil
		}
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
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
func (j *Judge) ill(f Facts) []string {
	all := j.apart(f)
	var down []string
	for uid, ready := range j.Before.Pods {
		if now, there := f.Pods[uid]; ready && there && !now && !j.excused(uid, f) {
			down = append(down, cmp.Or(f.Names[uid], uid))
		}
	}
	if n := len(down); n > 0 {
		slices.Sort(down)
		text := strings.Join(down[:min(n, maxNamed)], ", ")
		if n > maxNamed {
			text += fmt.Sprintf(" and %d more", n-maxNamed)
		}
		all = append(all, fmt.Sprintf("%d pods are not ready that were: %s", n, text))
	}
	return all
}

// maxNamed bounds how many pods a message names.
const maxNamed = 8

// apart says what is not as well as before apart from pods.
func (j *Judge) apart(f Facts) (all []string) {
	for _, c := range []struct{ what, before, now string }{
		{"the API server cannot be reached", j.Before.Link, f.Link},
		{"the node is not Ready", j.Before.Node, f.Node},
		{"the kubelet API cannot be reached", j.Before.Reach, f.Reach},
	} {
		if c.before == "" && c.now != "" {
			all = append(all, c.what+": "+c.now)
		}
	}
	return all
}
