package object

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/retry"
)

// pollInterval returns the interval between two reads of a get-only object. A claim or volume that is not bound yet, or that is growing, is
// read often at first. A kubelet reads it ten times a second until it is ready. The claim of a CSI volume is read regularly, because it may
// grow at any time. Other objects are read rarely, because they do not change while they are used. Only the item's goroutine may call
// pollInterval.
func (c *Cache) pollInterval(it *item) time.Duration {
	if it.Kind != claimKind && it.Kind != volumeKind {
		return c.untilBeat(rarePoll)
	}
	if it.gone || !it.kind.isSettled(it.content) || isGrowing(it.content) || c.isGrowingVolume(it) {
		it.readInterval = min(max(2*it.readInterval, waitingPoll), maxWaitingPoll)
		return retry.Jitter(it.readInterval)
	}
	it.readInterval = 0
	if it.Kind == claimKind && c.isCSIClaim(it) {
		return c.untilBeat(cmp.Or(c.cfg.Every, claimPoll))
	}
	return c.untilBeat(rarePoll)
}

// untilBeat returns the time until the next beat. A beat is a point in time at which all objects with the same interval are read. Reading
// them together saves memory and radio time. Beats are counted from the start of the Cache, and two beats are one interval apart. A random
// offset makes the beats differ between nodes that start at the same time.
func (c *Cache) untilBeat(every time.Duration) time.Duration {
	return every - (time.Since(c.born)+time.Duration(c.phase*float64(every)))%every
}

// isGrowing reports whether a claim requests more space than its file system has.
func isGrowing(claim content) bool {
	l, ok := claim.(*v1.PersistentVolumeClaimList)
	if !ok || len(l.Items) != 1 {
		return false
	}
	want, capacity := l.Items[0].Spec.Resources.Requests.Storage(), l.Items[0].Status.Capacity.Storage()
	return !capacity.IsZero() && want.Cmp(*capacity) > 0
}

// isGrowingVolume reports whether an item is the volume of a growing claim.
func (c *Cache) isGrowingVolume(it *item) bool {
	l, ok := it.content.(*v1.PersistentVolumeList)
	if !ok || len(l.Items) != 1 || l.Items[0].Spec.ClaimRef == nil {
		return false
	}
	ref := l.Items[0].Spec.ClaimRef
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.items[store.ObjectKey{Kind: claimKind, Namespace: ref.Namespace, Name: ref.Name}]
	return claim != nil && claim.isKnown() && isGrowing(claim.content)
}

// isCSIClaim reports whether the volume of a claim is a CSI volume. If the volume is not known yet, it returns true.
func (c *Cache) isCSIClaim(it *item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range it.listReferences() {
		pv := c.items[k]
		if pv == nil || !pv.isKnown() {
			return true
		}
		if k.Kind == volumeKind {
			l, ok := pv.content.(*v1.PersistentVolumeList)
			if ok && len(l.Items) == 1 && l.Items[0].Spec.CSI != nil {
				return true
			}
		}
	}
	return false
}

// readGrowing requests a read of the volume of a growing claim. The caller must hold mu.
func (c *Cache) readGrowing(it *item) {
	if it.Kind != claimKind || !isGrowing(it.content) {
		return
	}
	for _, k := range it.listReferences() {
		if pv := c.items[k]; pv != nil {
			pv.requestRead()
		}
	}
}
