package trial

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Facts describe the health of the node at one moment.
type Facts struct {
	Link     string   `json:"link,omitempty"`     // why the API server is unreachable; empty if it is reachable or there is none
	Node     string   `json:"node,omitempty"`     // why the node is not Ready; empty if it is Ready
	Reach    string   `json:"reach,omitempty"`    // why the kubelet API is unreachable; empty if it is reachable
	Pressure []string `json:"pressure,omitempty"` // the node's pressure conditions, sorted
	// Pods contains the pods that are desired and have not ended, by UID. The value is true if the pod is ready.
	Pods map[string]bool `json:"pods,omitempty"`
	// Rejected contains the pods that the node has ended or not admitted, by UID. The value is the reason.
	Rejected map[string]string `json:"rejected,omitempty"`

	// Names contains the namespace/name of each pod in Pods, by UID, for messages.
	Names map[string]string `json:"-"`
	// Probes contains the kind of the readiness probe of each pod in Pods that has one, by UID: see ProbeNetwork.
	Probes map[string]string `json:"-"`
	// Held contains the UIDs of the pods that no source lists any more. They would end if there were no trial.
	Held []string `json:"-"`
	// Known contains the UIDs of all pods that the agent knows, also of those that are being stopped.
	Known map[string]bool `json:"-"`
}

// The kinds of readiness probes: a probe over the network, or a command in the container.
const (
	ProbeNetwork = "network"
	ProbeExec    = "exec"
)

// bestFacts combines the facts of two moments: for each fact, it returns the better of the two values. The result
// contains only the pods of the later moment.
func bestFacts(earlier, later Facts) Facts {
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

// A Verdict is the result of a trial, as far as the facts determine it.
type Verdict int

// The verdicts.
const (
	Waiting Verdict = iota // not decided yet
	Good
	Bad
)

// A Judge compares the state of the node with its state before the trial.
//
// A pod could prevent every update by making itself unready or filling the disk. So pods alone cannot make every
// trial fail. If pods were the only problem in the first trial, the second trial ignores these pods, and the third
// one ignores all pods. However, an unready pod is only ignored if there is proof that the change on trial is not the
// cause: another pod with the same kind of readiness probe must be ready. Without such a pod, the change on trial is
// the more likely cause. An example is a configuration with which the agent cannot reach any pod.
type Judge struct {
	Before      Facts
	HealthyFor  time.Duration // how long the node must be as healthy as before without interruption
	DespitePods bool          // ignores all pods and pressures
	ExcuseAll   bool          // ignores every pod for which there is proof, and all pressures
	Excused     []string      // UIDs of pods that are ignored if there is proof, and ignored pressures
	Limits      bool          // the configuration on trial changes the eviction thresholds

	healthySince  time.Time       // since when the node is as healthy as before; zero if it is not
	knownPods     map[string]bool // all pods that the agent knew during the trial
	readyPods     map[string]bool // pods that were ready during the trial
	becameUnready map[string]bool // pods that were ready during the trial and later unready
}

// Judge returns the Judge of the trial in progress.
func (r *Record) Judge(healthyFor time.Duration, limits bool) Judge {
	j := Judge{Before: r.Trial.Before, HealthyFor: healthyFor, Limits: limits, DespitePods: r.Assigned.DespitePods}
	if v := r.Vetoed; v != nil {
		j.Excused, j.ExcuseAll = v.By, v.Trials >= Attempts-1
	}
	return j
}

// Evaluate evaluates the facts at the given time, which must be from a monotonic clock. It returns the verdict, and a
// description of the problems that the node did not have before. The description is empty if the verdict is Good.
func (j *Judge) Evaluate(now time.Time, f Facts) (v Verdict, why string) {
	if j.knownPods == nil {
		j.knownPods, j.readyPods, j.becameUnready = map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	maps.Copy(j.knownPods, f.Known)
	for uid, ready := range f.Pods {
		j.becameUnready[uid] = j.becameUnready[uid] || j.readyPods[uid] && !ready
		j.readyPods[uid] = j.readyPods[uid] || ready
	}
	if fatal := j.fatalProblem(f); fatal != "" {
		return Bad, fatal
	}
	if why = j.describeProblems(f); why != "" {
		j.healthySince = time.Time{}
		return Waiting, why
	}
	if j.healthySince.IsZero() {
		j.healthySince = now
	}
	if now.Sub(j.healthySince) >= j.HealthyFor {
		return Good, ""
	}
	return Waiting, fmt.Sprintf("as well as before for %s of %s", now.Sub(j.healthySince).Round(time.Second), j.HealthyFor)
}

// fatalProblem returns a problem that must end the trial at once, because pods would otherwise be lost.
func (j *Judge) fatalProblem(f Facts) string {
	for _, p := range j.newPressures(f) {
		if !j.isExcused(p, f) {
			return "the node has " + p + ", which it did not have before: pods would be evicted"
		}
	}
	return j.rejectedPod(f)
}

// rejectedPod describes a pod that the node has ended during the trial, or returns "".
func (j *Judge) rejectedPod(f Facts) string {
	for _, uid := range slices.Sorted(maps.Keys(f.Rejected)) {
		_, ran := j.Before.Pods[uid]
		if _, before := j.Before.Rejected[uid]; ran && !before {
			return fmt.Sprintf("pod %s, which ran before, was ended by the node: %s", uid, f.Rejected[uid])
		}
	}
	return ""
}

// newPressures returns the pressures that the node did not have before the trial.
func (j *Judge) newPressures(f Facts) []string {
	return slices.DeleteFunc(slices.Clone(f.Pressure), func(p string) bool { return slices.Contains(j.Before.Pressure, p) })
}

// isExcused reports whether a pod or pressure is ignored.
func (j *Judge) isExcused(name string, f Facts) bool {
	if _, pod := j.Before.Pods[name]; !pod && j.Limits {
		return false
	}
	return j.DespitePods || (j.ExcuseAll || slices.Contains(j.Excused, name)) && j.hasProof(name, f)
}

// hasProof reports whether there is proof that the change on trial is not the cause of an unready pod. The proof is
// another ready pod, which must have a network probe. If the unready pod has no network probe, a ready pod with any
// kind of probe is proof as well. A pressure needs no proof.
func (j *Judge) hasProof(name string, f Facts) bool {
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

// BlockingCauses returns the pods and pressures that are the only reason why the trial has not succeeded: the sorted UIDs of
// pods that are or were unready, and new pressures. It returns nil if there are other problems, or if the change on
// trial may be the cause of an unready pod.
func (j *Judge) BlockingCauses(f Facts) (out []string) {
	if len(j.nodeProblems(f))+len(j.lostPods(f)) > 0 || j.rejectedPod(f) != "" {
		return nil
	}
	if !j.Limits {
		out = j.newPressures(f)
	}
	for uid, ready := range j.Before.Pods {
		now, there := f.Pods[uid]
		if !ready || !there || now && !j.becameUnready[uid] {
			continue
		}
		if !now && !j.hasProof(uid, f) {
			return nil
		}
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// Outage reports whether the change on trial may not be the cause of any problem. That is so if the only problems are
// an unreachable API server, or missing pods, which may have been deleted meanwhile.
func (j *Judge) Outage(f Facts) bool {
	gone := j.Before.Link == "" && f.Link != ""
	f.Link = ""
	return len(j.healthProblems(f)) == 0 && (gone || len(j.lostPods(f)) > 0)
}

// describeProblems describes the facts that are worse than before the trial.
func (j *Judge) describeProblems(f Facts) string {
	return strings.Join(append(j.healthProblems(f), j.lostPods(f)...), "; ")
}

// lostPods describes the pods that ran before the trial and are missing now. They may have been deleted, or the agent
// on trial may be unable to find them.
func (j *Judge) lostPods(f Facts) (all []string) {
	held, unknown := 0, 0
	for uid := range j.Before.Pods {
		switch {
		case slices.Contains(f.Held, uid):
			held++
		case !j.knownPods[uid]:
			unknown++
		}
	}
	if held > 0 {
		all = append(all, fmt.Sprintf("%d pods that ran would end, because no source lists them any more", held))
	}
	if unknown > 0 {
		all = append(all, fmt.Sprintf("%d pods that ran are not known any more", unknown))
	}
	return all
}

// healthProblems describes problems of the node, and the pods that were ready before and are not ready now.
func (j *Judge) healthProblems(f Facts) []string {
	all := j.nodeProblems(f)
	var down []string
	for uid, ready := range j.Before.Pods {
		if now, there := f.Pods[uid]; ready && there && !now && !j.isExcused(uid, f) {
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

// maxNamed is the maximum number of pods that a message names.
const maxNamed = 8

// nodeProblems describes problems that the node did not have before. Problems of pods are not included.
func (j *Judge) nodeProblems(f Facts) (all []string) {
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
