package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// Ended releases the claims of a pod that has ended.
func (m *Manager) Ended(ctx context.Context, pod *v1.Pod) error { return m.Release(ctx, pod.UID) }

// Release releases the claims of a pod that was deleted. The drivers unprepare the claims that no other pod uses. The
// claims that are being prepared or unprepared for another pod come last.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	var all []*claim
	for _, c := range m.claims {
		if c.pods[uid] {
			all = append(all, c)
		}
	}
	for _, pods := range m.waiting {
		delete(pods, uid)
	}
	maps.DeleteFunc(m.waiting, func(_ string, pods map[types.UID]bool) bool { return len(pods) == 0 })
	m.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *claim) int { return cmp.Compare(a.uid, b.uid) })
	began := time.Now()
	free, busy := tryLockClaims(all)
	err := m.releaseClaims(ctx, uid, free)
	if len(busy) > 0 {
		_, failed := lockClaims(ctx, busy)
		if failed == nil {
			failed = m.releaseClaims(ctx, uid, busy)
		}
		err = errors.Join(err, failed)
	}
	m.c.Counter.DRAOperation("UnprepareResources", err != nil, time.Since(began))
	return err
}

// tryLockClaims locks the claims that are not locked, and returns both kinds.
func tryLockClaims(all []*claim) (locked, busy []*claim) {
	for _, c := range all {
		select {
		case c.busy <- struct{}{}:
			locked = append(locked, c)
		default:
			busy = append(busy, c)
		}
	}
	return locked, busy
}

// releaseClaims releases claims of a pod. It stores the change before it forgets the pod, so that a failure is retried.
// The caller must have locked the claims. releaseClaims unlocks each claim when it is released or has failed.
func (m *Manager) releaseClaims(ctx context.Context, uid types.UID, claims []*claim) error {
	var shared, unused []*claim
	var rest []store.Claim
	m.mu.Lock()
	for _, c := range claims {
		switch {
		case m.claims[c.uid] != c || !c.pods[uid]: // another call has released it in the meantime
			<-c.busy
		case len(c.pods) > 1 || len(c.parts) == 0:
			shared = append(shared, c)
			rest = append(rest, c.rowsWithout(uid)...)
		default:
			unused = append(unused, c)
		}
	}
	m.mu.Unlock()
	err := m.forgetUse(uid, shared, func() error { return m.c.Store.PutClaims(ctx, rest) })
	unlockClaims(shared)
	if err = errors.Join(err, m.unprepareClaims(ctx, uid, unused)); err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

// forgetUse stores that a pod no longer uses claims, and then removes the pod from them. It also removes the claims that no pod
// uses.
func (m *Manager) forgetUse(uid types.UID, claims []*claim, write func() error) error {
	if len(claims) == 0 {
		return nil
	}
	if err := write(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		delete(c.pods, uid)
		if len(c.pods) == 0 && m.claims[c.uid] == c {
			delete(m.claims, c.uid)
		}
	}
	return nil
}

// unprepareClaims calls each driver once for all claims with its devices, and unlocks the claims. The drivers are called
// concurrently.
func (m *Manager) unprepareClaims(ctx context.Context, uid types.UID, claims []*claim) error {
	batches := map[string][]*claim{}
	left := map[*claim]int{} // number of drivers that have not unprepared the claim; guarded by mu
	m.mu.Lock()
	for _, c := range claims {
		left[c] = len(c.parts)
		for name, p := range c.parts {
			p.prepared = false // the row is kept if the call fails
			batches[name] = append(batches[name], c)
		}
	}
	m.mu.Unlock()
	names := slices.Sorted(maps.Keys(batches))
	errs := make([]error, len(names))
	var calls sync.WaitGroup
	for i, name := range names {
		calls.Go(func() { errs[i] = m.unprepareBatch(ctx, uid, name, batches[name], left) })
	}
	calls.Wait()
	unlockClaims(slices.Collect(maps.Keys(left)))
	return errors.Join(errs...)
}

// unprepareBatch calls a driver to unprepare claims. It releases and unlocks the claims that all their drivers have unprepared,
// and removes them from left. If the driver is not registered, the pod waits for it.
func (m *Manager) unprepareBatch(ctx context.Context, uid types.UID, name string, claims []*claim, left map[*claim]int) error {
	m.mu.Lock()
	d := m.latestLocked(name)
	if d == nil {
		if m.waiting[name] == nil {
			m.waiting[name] = map[types.UID]bool{}
		}
		m.waiting[name][uid] = true
	}
	m.mu.Unlock()
	if d == nil {
		return errNotRegistered(name)
	}
	unprepared, err := d.unprepareClaims(ctx, claims)
	var done []*claim
	var rows []store.Claim
	m.mu.Lock()
	for _, c := range unprepared {
		if left[c]--; left[c] == 0 {
			delete(left, c)
			done = append(done, c)
			rows = append(rows, c.toRows()...)
		}
	}
	m.mu.Unlock()
	defer unlockClaims(done)
	return errors.Join(err, m.forgetUse(uid, done, func() error { return m.c.Store.RemoveClaims(ctx, rows) }))
}

// Sweep calls PodChanged for each pod that has claims and for which the function keep returns false. Such a pod exists if its
// release failed and no source knows it after a restart of the agent. Its worker then calls Release, and again after a failure or when
// the driver registers. Call Sweep only after all sources of pods have reported.
func (m *Manager) Sweep(keep func(types.UID) bool) {
	users := map[types.UID]bool{}
	m.mu.Lock()
	for _, c := range m.claims {
		maps.Copy(users, c.pods)
	}
	m.mu.Unlock()
	for uid := range users {
		if !keep(uid) {
			m.c.PodChanged(uid)
		}
	}
}
