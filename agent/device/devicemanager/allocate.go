package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// errNoProvider means that the provider of a resource is not connected.
var errNoProvider = errors.New("its provider is gone")

// Admit allocates the devices that the containers of a pod request. A pod keeps an allocation that it already has,
// for example from before a restart, even if the provider is not connected. If there are too few devices, nothing is
// allocated, and Admit returns a kubelet's reason and message. An error means that the decision could not be made, for example
// because the devices are reserved for another pod whose allocation may still fail.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) (reason, refusal string, err error) {
	err = m.allocateMissing(ctx, pod)
	if err == nil || ctx.Err() != nil || IsUndecided(err) {
		return "", "", err
	}
	return Unexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), nil
}

// Unexpected is a kubelet's reason for a pod whose devices cannot be allocated.
const Unexpected = "UnexpectedAdmissionError"

// IsUndecided reports whether err is a failure to store an allocation, or depends on an allocation that has not ended. Such an
// error does not reject the pod.
func IsUndecided(err error) bool {
	stored, unfinished := (*storeError)(nil), (*unfinishedError)(nil)
	return errors.As(err, &stored) || errors.As(err, &unfinished)
}

// NeedsAllocation reports whether a pod requests devices that are not allocated to it yet.
func (m *Manager) NeedsAllocation(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) == 0 {
		return false
	}
	all, err := m.listRequests(pod)
	return err != nil || slices.ContainsFunc(all, func(w deviceRequest) bool { return w.missing })
}

// A storeError reports that an allocation could not be stored.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

// An unfinishedError reports that another allocation has not ended. It is for the same pod, or has reserved devices that the pod
// lacks. If it fails, they are given back.
type unfinishedError struct{ error }

func (e *unfinishedError) Unwrap() error { return e.error }

// errAborted ends an allocation that panicked.
var errAborted = errors.New("the allocation of devices was aborted")

// A deviceRequest is a container's request for devices of one resource.
type deviceRequest struct {
	key
	ctr     *v1.Container
	kind    podspec.Kind
	count   int
	missing bool          // nothing is allocated yet
	at      topology.Mask // the NUMA nodes for which the devices are reserved
	grant   *grant        // the reservation; nil if nothing is reserved by this allocation
}

// listRequests lists a pod's requests for resources that have devices, init containers first. It omits requests that a
// ResourceClaim serves (KEP-5004). The caller holds mu.
func (m *Manager) listRequests(pod *v1.Pod) (out []deviceRequest, err error) {
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ctr.Resources.Limits)) {
			q := ctr.Resources.Limits[name]
			w := deviceRequest{key: key{ctr.Name, string(name)}, ctr: ctr, kind: kind, count: int(q.Value())}
			has := m.grants[pod.UID][w.key]
			if w.count <= 0 || has == nil && !m.hasDevices(w.resource) || servedByClaim(pod, w.key) {
				continue
			}
			if has != nil && len(has.IDs) != w.count {
				return nil, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d",
					pod.UID, w.container, w.resource, len(has.IDs), w.count)
			}
			w.missing = has == nil
			out = append(out, w)
		}
	}
	return out, nil
}

// servedByClaim reports whether the scheduler created a ResourceClaim for an extended resource of a container.
func servedByClaim(pod *v1.Pod, k key) bool {
	st := pod.Status.ExtendedResourceClaimStatus
	return st != nil && slices.ContainsFunc(st.RequestMappings, func(r v1.ContainerExtendedResourceRequest) bool {
		return r.ContainerName == k.container && r.ResourceName == k.resource
	})
}

// hasDevices reports whether the Manager manages a resource: it has a provider, has lost its provider less than
// capacityGrace ago, or has allocated devices. The caller holds mu.
func (m *Manager) hasDevices(name string) bool {
	r := m.resources[name]
	return r != nil && (!r.expired || m.inUse(name))
}

// allocateMissing allocates the missing devices of a pod: all of them or none.
func (m *Manager) allocateMissing(ctx context.Context, pod *v1.Pod) error {
	g, err := m.BeginAllocation(pod)
	if err != nil || !g.needsDevices() {
		return err
	}
	defer func() { _ = g.End(ctx, errAborted, nil) }()
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral || err != nil {
			break
		}
		err = g.Reserve(ctr, 0)
	}
	if err == nil {
		err = g.Allocate(ctx)
	}
	return g.End(ctx, err, nil)
}

// A PodAllocation is an unfinished allocation of devices to one pod. The caller calls Reserve for each container, then
// Allocate unless that failed, and must then call End.
type PodAllocation struct {
	m           *Manager
	pod         *v1.Pod
	requests    []deviceRequest
	ended       bool
	rows        []store.Devices
	grantedKeys []key
	spare       spares
}

// BeginAllocation begins to allocate devices to a pod. It returns an error if another allocation to the pod has not ended and
// devices are missing, which can happen when two containers start.
func (m *Manager) BeginAllocation(pod *v1.Pod) (*PodAllocation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.listRequests(pod)
	if err != nil {
		return nil, err
	}
	g := &PodAllocation{m: m, pod: pod, requests: all, spare: spares{}}
	if g.needsDevices() {
		err = m.checkFinished(pod.UID, "")
	}
	return g, err
}

// checkFinished returns an error if devices of a container are being allocated. An empty name means any container of the pod.
// The caller holds mu.
func (m *Manager) checkFinished(uid types.UID, container string) error {
	for k, g := range m.grants[uid] {
		if g.pending && (container == "" || container == k.container) {
			return &unfinishedError{fmt.Errorf("the devices of container %s are being allocated", k.container)}
		}
	}
	return nil
}

func (g *PodAllocation) needsDevices() bool {
	return slices.ContainsFunc(g.requests, func(w deviceRequest) bool { return w.missing })
}

// Reserve reserves devices for one container. It prefers devices of the given NUMA nodes; zero means any node. It calls no
// provider. The caller must call it for the containers in the order in which they start.
func (g *PodAllocation) Reserve(ctr *v1.Container, at topology.Mask) error {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	for i := range g.requests {
		w := &g.requests[i]
		if w.container != ctr.Name {
			continue
		}
		if w.missing {
			ids, err := g.pickDevices(*w, pickInput{spare: g.spare[w.resource], at: at})
			if err != nil {
				return err
			}
			w.at, w.grant = at, &grant{row: row{IDs: ids}, pending: true}
			g.m.put(g.pod.UID, w.key, w.grant)
			g.grantedKeys = append(g.grantedKeys, w.key)
		}
		g.spare.update(*w, g.grantedIDs(w.key))
	}
	return nil
}

// Allocate calls the providers of the reserved devices. It locks nothing during these calls.
func (g *PodAllocation) Allocate(ctx context.Context) error {
	for i, w := range g.requests {
		if w.grant == nil {
			continue
		}
		if err := g.allocateOne(ctx, i); err != nil {
			return err
		}
		data, err := json.Marshal(w.grant.row)
		if err != nil {
			return err
		}
		g.rows = append(g.rows, store.Devices{
			UID: g.pod.UID, Container: w.container, Resource: w.resource, Count: w.count, Given: data,
		})
	}
	return nil
}

// End stores the allocation, together with the given additional rows, in one transaction. If err is not nil or the rows
// cannot be stored, End revokes the allocation and returns the error. Only the first call has an effect.
func (g *PodAllocation) End(ctx context.Context, err error, more []store.Devices) error {
	if g.ended {
		return err
	}
	g.ended = true
	stored := false
	defer func() { g.finish(stored) }()
	if rows := slices.Concat(g.rows, more); err == nil && len(rows) > 0 {
		if failed := g.m.c.Store.GiveDevices(ctx, rows); failed != nil {
			err = &storeError{failed}
		}
	}
	stored = err == nil
	return err
}

// spares contains the devices of a pod's init containers, by resource. Later containers may reuse them, since an init
// container ends before the next container starts.
type spares map[string]map[string]bool

// update adds the given devices to the spares if they belong to an init container. If they belong to another container,
// update removes them from the spares.
func (s spares) update(w deviceRequest, ids []string) {
	if s[w.resource] == nil {
		s[w.resource] = map[string]bool{}
	}
	for _, id := range ids {
		if w.kind == podspec.Init {
			s[w.resource][id] = true
		} else {
			delete(s[w.resource], id)
		}
	}
}

// finish confirms the granted devices if they are stored, and revokes them otherwise.
func (g *PodAllocation) finish(stored bool) {
	m, uid := g.m, g.pod.UID
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range g.grantedKeys {
		if has := m.grants[uid][k]; has != nil && stored {
			has.pending = false
		} else {
			delete(m.grants[uid], k)
		}
	}
	if len(m.grants[uid]) == 0 {
		delete(m.grants, uid)
	}
}

// allocateOne calls the provider of the devices that are reserved for the request with index i.
func (g *PodAllocation) allocateOne(ctx context.Context, i int) error {
	m, w := g.m, g.requests[i]
	preferred, err := g.preferredIDs(ctx, i)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if err := g.chooseDevices(i, preferred); err != nil {
		m.mu.Unlock()
		return err
	}
	r := m.resources[w.resource]
	for _, id := range w.grant.IDs {
		if nodes := r.devices[id].NUMA; len(nodes) > 0 {
			if w.grant.NUMA == nil {
				w.grant.NUMA = map[string][]int64{}
			}
			w.grant.NUMA[id] = nodes
		}
	}
	ids, link := w.grant.IDs, r.link
	m.mu.Unlock()
	if link == nil {
		return fmt.Errorf("resource %s: %w", w.resource, errNoProvider)
	}
	a, err := link.provider.Allocate(ctx, Request{g.pod, w.ctr, ids})
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	w.grant.Allocation = a
	m.mu.Unlock()
	return nil
}

// preferredIDs returns the devices that the provider prefers. It returns nil if the provider is not a Preferrer or
// there is no choice.
func (g *PodAllocation) preferredIDs(ctx context.Context, i int) ([]string, error) {
	m, w := g.m, g.requests[i]
	m.mu.Lock()
	must, free := m.availableNear(w, g.pickInput(i))
	link := m.resources[w.resource].link
	m.mu.Unlock()
	must = must[:min(len(must), w.count)]
	p, ok := providerOf(link).(Preferrer)
	if !ok || len(must) == w.count || len(must)+len(free) <= w.count {
		return nil, nil
	}
	all := slices.Concat(must, free)
	slices.Sort(all)
	return p.PreferredDevices(ctx, Choice{Pod: g.pod, Container: w.ctr, Available: all, Must: must, Count: w.count})
}

func providerOf(l *Link) Provider {
	if l == nil {
		return nil
	}
	return l.provider
}

// availableDevices returns two lists of healthy devices that a container may get: the devices that it can reuse from an init
// container of its pod, and the devices that are not allocated or reserved. The caller holds mu.
func (m *Manager) availableDevices(name string, in pickInput) (reused, free []string) {
	used := map[string]bool{}
	for _, grants := range m.grants {
		for k, g := range grants {
			if k.resource == name {
				for _, id := range g.IDs {
					used[id] = true
				}
			}
		}
	}
	for id, d := range m.resources[name].devices {
		switch {
		case !d.Healthy:
		case in.spare[id]:
			reused = append(reused, id)
		case !used[id] || in.own[id]:
			free = append(free, id)
		}
	}
	slices.Sort(reused)
	slices.Sort(free)
	return reused, free
}

// pickDevices selects devices in this order: devices that the pod can reuse, devices that the provider prefers, other free
// devices. The caller holds mu.
func (g *PodAllocation) pickDevices(w deviceRequest, in pickInput) ([]string, error) {
	m := g.m
	healthy := func(d Device) bool { return d.Healthy }
	if !slices.ContainsFunc(slices.Collect(maps.Values(m.resources[w.resource].devices)), healthy) {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", w.resource)
	}
	reused, free := m.availableDevices(w.resource, in)
	if missing := w.count - len(reused); missing > len(free) {
		err := fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			w.resource, missing, len(free))
		if missing <= len(free)+m.countReserved(w.resource, g.pod.UID) {
			err = &unfinishedError{err}
		}
		return nil, err
	}
	ids, free := m.availableNear(w, in)
	ids = ids[:min(len(ids), w.count)]
	for _, list := range [][]string{in.preferred, free} {
		for _, id := range list {
			if slices.Contains(free, id) && len(ids) < w.count && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// countReserved returns the number of devices that unfinished allocations to other pods reserve. The caller holds mu.
func (m *Manager) countReserved(resource string, uid types.UID) int {
	ids := map[string]bool{}
	for owner, grants := range m.grants {
		for k, g := range grants {
			if owner != uid && k.resource == resource && g.pending {
				addAll(ids, g.IDs)
			}
		}
	}
	return len(ids)
}

// Prepare allocates the devices that a pod does not have yet. That is the case if the pod was admitted before the
// resource had a provider, or if it has ended and runs again.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error { return m.allocateMissing(ctx, pod) }

// replaceAllocation stores a new allocation for the same devices of a container.
func (m *Manager) replaceAllocation(ctx context.Context, uid types.UID, k key, a Allocation) error {
	if err := a.check(); err != nil {
		return err
	}
	m.mu.Lock()
	g := m.grants[uid][k]
	if g == nil || reflect.DeepEqual(g.Allocation, a) {
		m.mu.Unlock()
		return nil
	}
	now := g.row
	m.mu.Unlock()
	now.Allocation = a
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	changed := store.Devices{UID: uid, Container: k.container, Resource: k.resource, Count: len(now.IDs), Given: data}
	if err := m.c.Store.GiveDevices(ctx, []store.Devices{changed}); err != nil {
		return err
	}
	m.mu.Lock()
	g.Allocation = a
	m.mu.Unlock()
	return nil
}
