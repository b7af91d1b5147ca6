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
	free, busy, unlock := tryLockClaims(all)
	err := m.releaseClaims(ctx, uid, free)
	unlock()
	if len(busy) > 0 {
		unlock, failed := lockClaims(ctx, busy)
		if failed == nil {
			failed = m.releaseClaims(ctx, uid, busy)
			unlock()
		}
		err = errors.Join(err, failed)
	}
	m.c.Counter.DRAOperation("UnprepareResources", err != nil, time.Since(began))
	return err
}

// tryLockClaims locks the claims that are not locked, and returns both kinds.
func tryLockClaims(all []*claim) (locked, busy []*claim, unlock func()) {
	for _, c := range all {
		select {
		case c.busy <- struct{}{}:
			locked = append(locked, c)
		default:
			busy = append(busy, c)
		}
	}
	return locked, busy, func() {
		for _, c := range locked {
			<-c.busy
		}
	}
}

// releaseClaims releases claims of a pod. It stores the change before it forgets the pod, so that a failure is retried.
// The caller must have locked the claims.
func (m *Manager) releaseClaims(ctx context.Context, uid types.UID, claims []*claim) error {
	var shared, unused []*claim
	var rest []store.Claim
	m.mu.Lock()
	for _, c := range claims {
		switch {
		case m.claims[c.uid] != c || !c.pods[uid]: // another call has released it in the meantime
		case len(c.pods) > 1:
			shared = append(shared, c)
			rest = append(rest, c.rowsWithout(uid)...)
		default:
			unused = append(unused, c)
		}
	}
	m.mu.Unlock()
	var errs []error
	if len(shared) > 0 {
		if err := m.c.Store.PutClaims(ctx, rest); err != nil {
			errs = append(errs, fmt.Errorf("unprepare dynamic resources: %w", err))
		} else {
			m.forgetUse(uid, shared)
		}
	}
	unprepared, err := m.unprepareClaims(ctx, uid, unused)
	if err != nil {
		errs = append(errs, fmt.Errorf("unprepare dynamic resources: %w", err))
	}
	if len(unprepared) > 0 {
		var rows []store.Claim
		m.mu.Lock()
		for _, c := range unprepared {
			rows = append(rows, c.toRows()...)
		}
		m.mu.Unlock()
		// The claims are unprepared, even if ctx has ended while another driver was called.
		if err := m.c.Store.RemoveClaims(context.WithoutCancel(ctx), rows); err != nil {
			errs = append(errs, fmt.Errorf("unprepare dynamic resources: %w", err))
		} else {
			m.forgetUse(uid, unprepared)
		}
	}
	return errors.Join(errs...)
}

// forgetUse removes a pod from claims, and the claims that no pod uses.
func (m *Manager) forgetUse(uid types.UID, claims []*claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		delete(c.pods, uid)
		if len(c.pods) == 0 && m.claims[c.uid] == c {
			delete(m.claims, c.uid)
		}
	}
}

// unprepareClaims calls each driver once for all claims with its devices. The drivers are called concurrently. It returns
// the claims that all their drivers have unprepared. The caller must have locked the claims.
func (m *Manager) unprepareClaims(ctx context.Context, uid types.UID, claims []*claim) (done []*claim, err error) {
	batches := map[string][]*claim{}
	m.mu.Lock()
	for _, c := range claims {
		for name, p := range c.parts {
			p.prepared = false // the row is kept if the call fails
			batches[name] = append(batches[name], c)
		}
	}
	m.mu.Unlock()
	names := slices.Sorted(maps.Keys(batches))
	failures := make([]map[types.UID]error, len(names))
	var calls sync.WaitGroup
	for i, name := range names {
		calls.Go(func() { failures[i] = m.unprepareBatch(ctx, uid, name, batches[name]) })
	}
	calls.Wait()
	var errs []error
	failed := map[types.UID]bool{}
	for i, name := range names {
		reported := map[string]bool{} // the failure of a call is the same for all claims
		for _, c := range batches[name] {
			if e := failures[i][c.uid]; e != nil {
				failed[c.uid] = true
				if !reported[e.Error()] {
					errs = append(errs, e)
				}
				reported[e.Error()] = true
			}
		}
	}
	for _, c := range claims {
		if !failed[c.uid] {
			done = append(done, c)
		}
	}
	return done, errors.Join(errs...)
}

// unprepareBatch calls a driver to unprepare claims, and returns the errors by claim. If the driver is not registered, the pod
// waits for it.
func (m *Manager) unprepareBatch(ctx context.Context, uid types.UID, name string, claims []*claim) map[types.UID]error {
	m.mu.Lock()
	d := m.latestLocked(name)
	if d == nil {
		if m.waiting[name] == nil {
			m.waiting[name] = map[types.UID]bool{}
		}
		m.waiting[name][uid] = true
	}
	m.mu.Unlock()
	if d != nil {
		return d.unprepareClaims(ctx, claims)
	}
	return eachFailed(claims, errNotRegistered(name))
}

func eachFailed(claims []*claim, err error) map[types.UID]error {
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.uid] = err
	}
	return out
}

// strayTime is the maximum time for releasing the claims of one pod that is gone.
const strayTime = 2 * time.Minute

// Sweep releases the claims of pods for which the function keep returns false, in the background. Such pods exist if their
// release failed and they are no longer known. Call it only after all sources of pods have reported, and again later,
// because a driver may not be registered or may fail. It does nothing while an earlier sweep runs.
func (m *Manager) Sweep(keep func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sweeping || len(m.claims) == 0 || m.ctx.Err() != nil {
		return
	}
	m.sweeping = true
	m.group.Go(func() {
		err := m.releaseStrays(m.ctx, keep)
		if err != nil && m.ctx.Err() == nil {
			m.c.Log.Warn("cannot unprepare the resource claims of removed pods: retrying later", "error", err)
		}
		m.mu.Lock()
		m.sweeping = false
		m.mu.Unlock()
	})
}

func (m *Manager) releaseStrays(ctx context.Context, keep func(types.UID) bool) error {
	users := map[types.UID]bool{}
	m.mu.Lock()
	for _, c := range m.claims {
		for uid := range c.pods {
			// Without the driver of an unused claim nothing can be done.
			absent := func(name string) bool { return len(m.drivers[name]) == 0 }
			if len(c.pods) > 1 || !slices.ContainsFunc(slices.Collect(maps.Keys(c.parts)), absent) {
				users[uid] = true
			}
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(users)) {
		if keep(uid) {
			continue
		}
		bounded, stop := context.WithTimeout(ctx, strayTime)
		errs = append(errs, m.Release(bounded, uid))
		stop()
	}
	return errors.Join(errs...)
}
