package desired

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// Set replaces all pods of a source, and the problems of that source. Missing pods end. A pod from an origin with a problem is kept,
// because the source cannot know whether the pod is still wanted. If Set returns an error, only the problems have changed, and the source
// must call Set again.
func (d *Desired) Set(ctx context.Context, source string, pods []SourcePod, problems []Problem) error {
	unsure := make(map[string]bool, len(problems))
	for _, p := range problems {
		unsure[p.Origin] = true
	}
	var held []types.UID
	err := d.applyEdit(ctx, func(next rows, blocked map[string][]blockedPod) error {
		gone := next.missingPods(source, pods, unsure)
		held = nil
		if d.Hold {
			gone, held = nil, gone
		}
		for _, uid := range gone {
			next.markDeleting(uid, graceOf(next[uid].Pod))
		}
		blocked[source] = next.applyPods(source, pods)
		return nil
	})
	if err == nil && d.Hold {
		d.mu.Lock()
		d.keptPods[source] = held
		d.mu.Unlock()
	}
	if err != nil {
		problems = append(slices.Clone(problems), Problem{Message: err.Error()})
	}
	d.replaceProblems(source, problems, err == nil)
	return err
}

// Update applies changes of a source: new, changed and removed pods. The other pods of the source are kept. If Update returns an
// error, nothing has changed, and the source must call Set.
func (d *Desired) Update(ctx context.Context, source string, pods []SourcePod, gone []RemovedPod) error {
	return d.applyEdit(ctx, func(next rows, blocked map[string][]blockedPod) error {
		named := make(map[types.UID]bool, len(pods)+len(gone))
		for _, g := range gone {
			named[g.UID] = true
			if row, ok := next[g.UID]; ok && row.Source == source {
				next.markDeleting(g.UID, g.Ending.gracePeriod(row.Pod))
			}
		}
		for _, p := range pods {
			named[p.Pod.UID] = true
		}
		still := slices.DeleteFunc(slices.Clone(blocked[source]), func(b blockedPod) bool { return named[b.Pod.UID] })
		blocked[source] = append(still, next.applyPods(source, pods)...)
		return nil
	})
}

// ReportFailure records why a source cannot read its pods. All pods of the source are kept.
func (d *Desired) ReportFailure(source string, problems []Problem) {
	d.replaceProblems(source, problems, false)
}

// replaceProblems replaces the problems of a source and logs the new ones. It also records whether the source has delivered its pods.
func (d *Desired) replaceProblems(source string, problems []Problem, delivered bool) {
	problems = slices.Clone(problems)
	for i := range problems {
		problems[i].Source = source
	}
	d.mu.Lock()
	before := d.problems[source]
	d.problems[source] = problems
	d.deliveredSources[source] = d.deliveredSources[source] || delivered
	d.mu.Unlock()
	d.logNew(before, problems)
}

func (d *Desired) logNew(before, now []Problem) {
	for _, p := range now {
		if !slices.Contains(before, p) {
			d.Log.Warn("a wanted pod has a problem", "source", p.Source, "origin", p.Origin, "field", p.Field, "problem", p.Message)
		}
	}
}

// Apply adds or replaces pods of the local source, which are identified by namespace and name. An unchanged pod has the same UID and keeps
// running. A changed pod ends within its grace period before its successor starts. Apply applies all pods or none.
func (d *Desired) Apply(ctx context.Context, pods []*v1.Pod) error {
	return d.applyEdit(ctx, func(next rows, _ map[string][]blockedPod) error {
		for _, p := range pods {
			h, held := next.findOwner(nameOf(p))
			if held && h.Source != Local {
				return fmt.Errorf("apply pod %s: %w: it is defined by %s, change it there", nameOf(p), ErrForeign, describe(h))
			}
			if held && h.Pod.UID != p.UID {
				next.markDeleting(h.Pod.UID, graceOf(h.Pod))
			}
			if why := next.whyBlocked(Local, SourcePod{Pod: p}); why != "" {
				return fmt.Errorf("apply: %s", why)
			}
			next.applyPod(Local, SourcePod{Pod: p})
		}
		return nil
	})
}

// Delete ends a pod of the local source. The grace period is in seconds; nil means the pod's own grace period. For a pod that already ends,
// Delete can only shorten the grace period.
func (d *Desired) Delete(ctx context.Context, uid types.UID, grace *int64) error {
	return d.applyEdit(ctx, func(next rows, _ map[string][]blockedPod) error {
		row, ok := next[uid]
		if !ok {
			return fmt.Errorf("delete pod %s: %w", uid, ErrNotFound)
		}
		if row.Source != Local {
			return fmt.Errorf("delete pod %s: %w: it is defined by %s, remove it there", nameOf(row.Pod), ErrForeign, describe(row))
		}
		within := graceOf(row.Pod)
		if grace != nil {
			within = time.Duration(*grace) * time.Second
		}
		next.markDeleting(uid, within)
		return nil
	})
}

// Forget removes a deleting pod. Call it after all resources of the pod on this node were removed. If the pod was added again in the
// meantime, Forget does not remove it: the pod becomes wanted. Forget ignores unknown UIDs, and pods that are not deleting.
func (d *Desired) Forget(ctx context.Context, uid types.UID) error {
	return d.applyEdit(ctx, func(next rows, _ map[string][]blockedPod) error {
		next.forget(uid)
		return nil
	})
}

// Rewrite stores all pods again, because the store may have lost rows. It does not write unchanged rows. It removes the rows of pods that
// were removed before, because a repair of the store may have found old copies of these rows.
func (d *Desired) Rewrite(ctx context.Context) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	stored, err := d.Store.Pods(ctx)
	var old []types.UID
	for _, p := range stored {
		if _, known := d.rows[p.Pod.UID]; !known {
			old = append(old, p.Pod.UID)
		}
	}
	if err == nil {
		err = d.Store.UpdatePods(ctx, slices.Collect(maps.Values(d.rows)), old)
	}
	if err != nil {
		return fmt.Errorf("store the wanted pods again: %w", err)
	}
	return nil
}

// Recovered is a pod that was reconstructed from its running containers.
type Recovered struct {
	Source   string
	Pod      *v1.Pod
	Deleting bool // true if the pod was ending
}

// Adopt adds running pods that the store has lost. It skips pods with a known UID. If a known pod has the same name, Adopt ends the added
// pod.
func (d *Desired) Adopt(ctx context.Context, pods []Recovered) error {
	return d.applyEdit(ctx, func(next rows, _ map[string][]blockedPod) error {
		for _, p := range pods {
			if _, found := next[p.Pod.UID]; found || p.Pod.UID == "" {
				continue
			}
			setPriority(p.Source, p.Pod)
			_, held := next.findOwner(nameOf(p.Pod))
			next[p.Pod.UID] = store.Pod{Seq: next.nextSeq(), Source: p.Source, Pod: p.Pod}
			if held || p.Deleting {
				next.markDeleting(p.Pod.UID, graceOf(p.Pod))
			}
		}
		return nil
	})
}
