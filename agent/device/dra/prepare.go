package dra

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Failure is the error of preparing a pod's claims.
type Failure struct{ Err error }

// Error returns a kubelet's message.
func (f *Failure) Error() string {
	return fmt.Sprintf("Failed to prepare dynamic resources: prepare dynamic resources: %v", f.Err)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Reason returns the reason in the event that reports the error.
func (*Failure) Reason() string { return "FailedPrepareDynamicResources" }

// Name returns the hook's name.
func (*Manager) Name() string { return "dynamic resources" }

// Prepare calls the drivers to prepare the claims of a pod.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	names, err := podspec.ResourceClaims(pod)
	if err == nil && len(names) > 0 {
		began := time.Now()
		err = m.prepareClaims(ctx, pod, names)
		m.c.Counter.DRAOperation("PrepareResources", err != nil, time.Since(began))
	}
	if err != nil {
		return &Failure{err}
	}
	return nil
}

func (m *Manager) prepareClaims(ctx context.Context, pod *v1.Pod, names []podspec.ResourceClaim) error {
	var claims []*claim
	for _, n := range names {
		c, err := m.resolveClaim(ctx, pod, n)
		if err != nil {
			return err
		}
		if !slices.Contains(claims, c) {
			claims = append(claims, c)
		}
	}
	slices.SortFunc(claims, func(a, b *claim) int { return cmp.Compare(a.uid, b.uid) })
	unlock, err := lockClaims(ctx, claims)
	if err != nil {
		return err
	}
	defer unlock()
	batches, err := m.recordUse(ctx, pod.UID, claims)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(batches)) {
		if err := m.prepareBatch(ctx, name, batches[name]); err != nil {
			return err
		}
	}
	return nil
}

// resolveClaim returns the claim for the given reference of a pod. If the claim is not recorded for the pod yet, it
// reads the ResourceClaim and checks that it is reserved for the pod.
func (m *Manager) resolveClaim(ctx context.Context, pod *v1.Pod, n podspec.ResourceClaim) (*claim, error) {
	m.mu.Lock()
	c := m.findClaim(pod, n.Name)
	m.mu.Unlock()
	if c != nil {
		return c, nil
	}
	if m.c.Objects == nil {
		return nil, fmt.Errorf("ResourceClaim %s: this node belongs to no cluster", n.Name)
	}
	obj, err := m.c.Objects.ResourceClaim(pod, n.Name)
	if err != nil {
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.Name, err)
	}
	if checkReserved(pod, n, obj) != nil { // the cached object may be older than the reservation
		if err := m.c.Objects.Renew(ctx, pod); err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.Name, err)
		}
		if obj, err = m.c.Objects.ResourceClaim(pod, n.Name); err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.Name, err)
		}
		if err := checkReserved(pod, n, obj); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.claims {
		if old.name == obj.Name && old.namespace == obj.Namespace && old.uid != obj.UID {
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)",
				old.name, old.uid)
		}
	}
	if c = m.claims[obj.UID]; c != nil {
		if !c.inUse(obj) {
			return nil, fmt.Errorf("ResourceClaim %s is still prepared for a pod for which it is no longer reserved", c.name)
		}
	} else {
		c = newClaim(obj.UID, obj.Namespace, obj.Name)
		for _, r := range obj.Status.Allocation.Devices.Results {
			c.parts[r.Driver] = &part{}
		}
	}
	return c, nil
}

// inUse reports whether the object is still reserved for a pod for which the claim is prepared. If it is not, other
// devices may have been allocated to the ResourceClaim in the meantime. The caller holds Manager.mu.
func (c *claim) inUse(obj *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(obj.Status.ReservedFor,
		func(r resourcev1.ResourceClaimConsumerReference) bool { return c.pods[r.UID] })
}

// checkReserved returns a kubelet's error if a pod may not use a claim.
func checkReserved(pod *v1.Pod, n podspec.ResourceClaim, c *resourcev1.ResourceClaim) error {
	if n.Made && !metav1.IsControlledBy(c, pod) {
		return fmt.Errorf("ResourceClaim %s/%s was not created for pod %s/%s (pod is not owner)",
			c.Namespace, c.Name, pod.Namespace, pod.Name)
	}
	reserved := func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }
	if !slices.ContainsFunc(c.Status.ReservedFor, reserved) {
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, c.Name, c.UID)
	}
	if c.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s: not allocated", c.Name)
	}
	return nil
}

// recordUse stores that a pod uses claims, and returns the claims to prepare, by driver. If a driver is not
// registered, it stores no row and returns an error, since no driver could unprepare the claim. The caller must have
// locked the claims.
func (m *Manager) recordUse(ctx context.Context, uid types.UID, all []*claim) (map[string][]*claim, error) {
	batches := map[string][]*claim{}
	m.mu.Lock()
	for _, c := range all {
		for name, p := range c.parts {
			if p.prepared {
				continue
			}
			if len(m.drivers[name]) == 0 {
				if m.waiting[name] == nil {
					m.waiting[name] = map[types.UID]bool{}
				}
				m.waiting[name][uid] = true
				m.mu.Unlock()
				return nil, errNotRegistered(name)
			}
			batches[name] = append(batches[name], c)
		}
	}
	var added []*claim
	for _, c := range all {
		if m.claims[c.uid] == c && c.pods[uid] {
			continue
		}
		if now := m.claims[c.uid]; now != nil && now != c {
			m.mu.Unlock()
			return nil, fmt.Errorf("ResourceClaim %s is being prepared for another pod", c.name)
		}
		m.claims[c.uid] = c
		c.pods[uid] = true
		added = append(added, c)
	}
	m.mu.Unlock()
	if err := m.storeClaims(ctx, added); err != nil {
		m.mu.Lock()
		for _, c := range added {
			delete(c.pods, uid)
			if len(c.pods) == 0 {
				delete(m.claims, c.uid)
			}
		}
		m.mu.Unlock()
		return nil, err
	}
	return batches, nil
}

func errNotRegistered(driver string) error {
	return fmt.Errorf("DRA driver %s is not registered", driver)
}

func (m *Manager) storeClaims(ctx context.Context, claims []*claim) error {
	if len(claims) == 0 {
		return nil
	}
	m.mu.Lock()
	var rows []store.Claim
	for _, c := range claims {
		rows = append(rows, c.toRows()...)
	}
	m.mu.Unlock()
	return m.c.Store.PutClaims(ctx, rows)
}

// prepareBatch calls a driver to prepare claims. The caller must have locked the claims.
func (m *Manager) prepareBatch(ctx context.Context, name string, claims []*claim) error {
	d := m.latestDriver(name)
	if d == nil {
		return errNotRegistered(name)
	}
	devices, err := d.prepareClaims(ctx, claims)
	if err != nil {
		return err
	}
	m.mu.Lock()
	for _, c := range claims {
		c.parts[name].devices = devices[c.uid]
	}
	m.mu.Unlock()
	if err := m.storeClaims(ctx, claims); err != nil {
		return err
	}
	m.mu.Lock()
	for _, c := range claims {
		c.parts[name].prepared = true
	}
	m.mu.Unlock()
	return nil
}
