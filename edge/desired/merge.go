package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// rows is the set of all pods, by UID. Its methods do no I/O.
type rows map[types.UID]store.Pod

// A blockedPod is a pod of a source that cannot be applied now, or only in part. Most blocked pods wait until their name is free.
type blockedPod struct {
	SourcePod
	field, why string
	final      bool // the pod stays blocked even if other pods are removed
}

func problemsOf(blocked map[string][]blockedPod) (problems []Problem) {
	for source, pods := range blocked {
		for _, b := range pods {
			problems = append(problems, Problem{Source: source, Origin: b.Origin, Field: b.field, Message: b.why})
		}
	}
	return problems
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// ownsName reports whether the row owns its namespace and name, so that no other pod can have them.
func ownsName(row store.Pod) bool { return !row.Deleting || row.Again }

// findOwner returns the row that owns a namespace and name.
func (r rows) findOwner(name types.NamespacedName) (store.Pod, bool) {
	for _, row := range r {
		if ownsName(row) && nameOf(row.Pod) == name {
			return row, true
		}
	}
	return store.Pod{}, false
}

// findPredecessors returns, for each wanted pod, the oldest deleting pod with the same name. That pod must be forgotten first.
func (r rows) findPredecessors() map[types.UID]types.UID {
	ending := map[types.NamespacedName]store.Pod{}
	for _, row := range r {
		if old, ok := ending[nameOf(row.Pod)]; row.Deleting && (!ok || row.Seq < old.Seq) {
			ending[nameOf(row.Pod)] = row
		}
	}
	waits := map[types.UID]types.UID{}
	if len(ending) == 0 || len(ending) == len(r) { // no two pods share a name
		return waits
	}
	for uid, row := range r {
		if first, ok := ending[nameOf(row.Pod)]; ok && !row.Deleting {
			waits[uid] = first.Pod.UID
		}
	}
	return waits
}

// findReplaced returns the deleting pods of the API server whose name a pod of the API server owns.
func (r rows) findReplaced() map[types.UID]bool {
	var owners map[types.NamespacedName]types.UID
	replaced := map[types.UID]bool{}
	for uid, row := range r {
		if row.Source != API || !row.Deleting {
			continue
		}
		if owners == nil {
			owners = r.findOwners(API)
		}
		if owners[nameOf(row.Pod)] != "" {
			replaced[uid] = true
		}
	}
	return replaced
}

// findOwners returns the UIDs of the pods of a source that own their name.
func (r rows) findOwners(source string) map[types.NamespacedName]types.UID {
	owners := map[types.NamespacedName]types.UID{}
	for uid, row := range r {
		if row.Source == source && ownsName(row) {
			owners[nameOf(row.Pod)] = uid
		}
	}
	return owners
}

// missingPods returns the known pods of a source that this source no longer lists. It omits pods whose origin has a problem,
// because such an origin may still contain the pod.
func (r rows) missingPods(source string, pods []SourcePod, unsure map[string]bool) (gone []types.UID) {
	type identity struct {
		uid  types.UID
		name types.NamespacedName
	}
	listed := make(map[identity]bool, len(pods))
	for _, p := range pods {
		listed[identity{p.Pod.UID, nameOf(p.Pod)}] = true
	}
	for uid, row := range r {
		keep := unsure[row.Origin] || row.Origin == "" && len(unsure) > 0 // an adopted row has no origin
		if row.Source == source && !keep && !listed[identity{uid, nameOf(row.Pod)}] {
			gone = append(gone, uid)
		}
	}
	return gone
}

// applyPods applies the pods of a source and returns the blocked pods. If two pods of the API server have the same name, the new pod
// replaces the old one. If a known pod is now too large for the node, applyPods keeps its former version and also returns the new one.
func (r rows) applyPods(source string, pods []SourcePod) []blockedPod {
	// If two files define a pod with the same UID, the file of the stored pod takes precedence.
	moved := func(p SourcePod) int {
		if r[p.Pod.UID].Origin == p.Origin {
			return 0
		}
		return 1
	}
	pods = slices.Clone(pods)
	sorting.StableBy(pods, func(a, b SourcePod) int { return moved(a) - moved(b) })
	var failed []blockedPod
	taken := map[types.UID]SourcePod{}
	for _, p := range pods {
		first, twice := taken[p.Pod.UID]
		h, ok := r.findOwner(nameOf(p.Pod))
		if ok && source == API && h.Source == API && h.Pod.UID != p.Pod.UID && p.Ending == nil && taken[h.Pod.UID].Pod == nil {
			r.markDeleting(h.Pod.UID, graceOf(h.Pod))
		}
		block := func(field, format string, args ...any) {
			failed = append(failed, blockedPod{p, field, fmt.Sprintf(format, args...), true})
		}
		switch why := r.whyBlocked(source, p); {
		case p.Pod.UID == "":
			block("metadata.uid", "pod %s has no UID", nameOf(p.Pod))
		case twice && first.Origin != p.Origin:
			block("metadata.uid", "the UID of pod %s is already used in %s", nameOf(p.Pod), first.Origin)
		case twice:
			block("metadata.uid", "the UID of pod %s is used twice", nameOf(p.Pod))
		case why != "":
			failed = append(failed, blockedPod{p, "metadata.name", why, false})
		default:
			taken[p.Pod.UID] = p
			if row, found := r[p.Pod.UID]; found && podspec.IsTooLarge(p.Pod) && !podspec.IsTooLarge(row.Pod) {
				if !hasEnded(p.Pod) { // changes of an ended pod would have no effect anyway
					block("", "pod %s, or the list of all pods, is too large for this node: its changes have no effect here", nameOf(p.Pod))
				}
				r.applyPod(source, SourcePod{withStatusOf(row.Pod, p.Pod), p.Origin, p.Ending})
				continue
			}
			r.applyPod(source, p)
		}
	}
	return failed
}

// withStatusOf returns the former version of a pod that is now too large. If the pod has ended, the result has the present status.
func withStatusOf(former, now *v1.Pod) *v1.Pod {
	if !hasEnded(now) {
		return former
	}
	ended := *former
	ended.Status = now.Status
	return &ended
}

func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// whyBlocked returns the reason why a pod of a source is blocked, or "" if it is not blocked.
func (r rows) whyBlocked(source string, p SourcePod) (why string) {
	name := nameOf(p.Pod)
	if h, ok := r.findOwner(name); ok && h.Pod.UID != p.Pod.UID {
		return fmt.Sprintf("pod %s is already defined by %s, which came first", name, describe(h))
	}
	row, found := r[p.Pod.UID]
	if found && (nameOf(row.Pod) != name || ownsName(row) && row.Source != source) {
		return fmt.Sprintf("the UID of pod %s is already used by pod %s of %s", name, nameOf(row.Pod), describe(row))
	}
	return ""
}

// applyPod adds a pod that is not blocked, or updates it.
func (r rows) applyPod(source string, p SourcePod) {
	row, found := r[p.Pod.UID]
	switch {
	case !found:
		row = store.Pod{Seq: r.nextSeq(), Pod: p.Pod}
	case row.Deleting: // the pod ends first and then starts again
		row.Again = true
	}
	row.Source, row.Origin = source, p.Origin
	if pod := p.withEphemeral(source, row); !sameManifest(row.Pod, pod) {
		row.Pod = pod
	}
	r[p.Pod.UID] = row
	if p.Ending != nil {
		r.markDeleting(p.Pod.UID, p.Ending.Grace)
	}
}

// markDeleting marks a pod as deleting. It can only shorten the grace period.
func (r rows) markDeleting(uid types.UID, grace time.Duration) {
	row := r[uid]
	if !row.Deleting || grace < row.Grace {
		row.Grace = grace
	}
	row.Deleting, row.Again = true, false
	r[uid] = row
}

// forget removes the row of a pod that has ended. If the pod was added again, its row becomes wanted.
func (r rows) forget(uid types.UID) {
	switch row := r[uid]; {
	case row.Again:
		row.Deleting, row.Again, row.Grace = false, false, 0
		row.Lives++
		row.Pod = withoutEphemeral(row)
		r[uid] = row
	case row.Deleting:
		delete(r, uid)
	}
}

func (r rows) nextSeq() int64 {
	var last int64
	for _, row := range r {
		last = max(last, row.Seq)
	}
	return last + 1
}

// retryBlocked applies the pods that are no longer blocked, and returns the others. It processes the sources in the order of their names.
func (r rows) retryBlocked(blocked map[string][]blockedPod) map[string][]blockedPod {
	still := map[string][]blockedPod{}
	for _, source := range slices.Sorted(maps.Keys(blocked)) {
		for _, b := range blocked[source] {
			if !b.final {
				b.why = r.whyBlocked(source, b.SourcePod)
				b.field = cmp.Or(b.field, "metadata.name")
			}
			if b.why != "" {
				still[source] = append(still[source], b)
			} else {
				r.applyPod(source, b.SourcePod)
			}
		}
	}
	return still
}

// compareRows compares two states. It returns the rows to write and the UIDs to remove. A pod that starts again under its UID is in both
// lists, because the rows of its former instance in other tables must be removed.
func compareRows(old, next rows) (put []store.Pod, remove []types.UID) {
	for uid, row := range next {
		before, found := old[uid]
		if row == before {
			continue
		}
		put = append(put, row)
		if found && before.Deleting && !row.Deleting {
			remove = append(remove, uid)
		}
	}
	for uid := range old {
		if _, ok := next[uid]; !ok {
			remove = append(remove, uid)
		}
	}
	return put, remove
}

// sameManifest reports whether two manifests with the same UID are equal. It ignores the annotation with the time at which islet read the
// manifest.
func sameManifest(a, b *v1.Pod) bool {
	if a == b {
		return true
	}
	b = b.DeepCopy()
	if seen, ok := a.Annotations[keys.ConfigSeen]; ok && b.Annotations[keys.ConfigSeen] != "" {
		b.Annotations[keys.ConfigSeen] = seen
	}
	return equality.Semantic.DeepEqual(a, b)
}

// gracePeriod returns the grace period of a pod.
func (e *Ending) gracePeriod(p *v1.Pod) time.Duration {
	if e != nil {
		return e.Grace
	}
	return graceOf(p)
}

func graceOf(p *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	return time.Duration(seconds) * time.Second
}

func describe(row store.Pod) string {
	if row.Origin == "" {
		return "source " + row.Source
	}
	return row.Origin
}
