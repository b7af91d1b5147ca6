package devicemanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/sorting"
)

// Limits of an allocation.
const (
	maxEntries    = 1 << 10 // entries of one kind
	maxText       = 1 << 16 // bytes of one name, path or value
	maxAllocation = 1 << 18 // bytes of all names, paths and values
)

// Name returns the hook's name.
func (*Manager) Name() string { return "devices" }

// Prepare allocates the devices that a pod does not have yet. That is the case if the pod was admitted before the
// resource had a provider, or if it has ended and runs again.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error { return m.allocateMissing(ctx, pod) }

// Start calls the providers of a container's devices before the container starts. It returns an error if a device is
// absent or unhealthy, or if a provider returns an error.
func (m *Manager) Start(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	for name, g := range m.rowsOf(pod.UID, ctr.Name) {
		m.mu.Lock()
		link, err := m.readyLink(name, g.IDs)
		m.mu.Unlock()
		if err != nil {
			return err
		}
		s, ok := link.provider.(Starter)
		if !ok {
			continue
		}
		now, err := s.Start(ctx, Request{pod, ctr, g.IDs})
		if err != nil {
			return err
		}
		if now != nil {
			if err := m.replaceAllocation(ctx, pod.UID, key{ctr.Name, name}, *now); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowsOf returns a container's allocations, by resource.
func (m *Manager) rowsOf(uid types.UID, container string) map[string]row {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]row{}
	for k, g := range m.grants[uid] {
		if k.container == container && !g.pending {
			out[k.resource] = g.row
		}
	}
	return out
}

// readyLink returns the link to the provider of the devices. It returns an error if the provider is not connected or
// a device is not healthy. The caller holds mu.
func (m *Manager) readyLink(name string, ids []string) (*Link, error) {
	r := m.resources[name]
	if r == nil || r.link == nil {
		return nil, fmt.Errorf("device %s of %s: %w", strings.Join(ids, ", "), name, errNoProvider)
	}
	for _, id := range ids {
		if d, there := r.devices[id]; !there || !d.Healthy {
			return nil, fmt.Errorf("device %s of %s is not healthy: %s", id, name, cmp.Or(d.Message, "the container waits for it"))
		}
	}
	return r.link, nil
}

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

// Container adds the allocations to a container's configuration. It does not replace
// environment variables and paths that the configuration already has.
func (m *Manager) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	all := m.rowsOf(pod.UID, ctr.Name)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name].Allocation
		a.applyTo(out)
	}
	return nil
}

func (a *Allocation) applyTo(out *api.ContainerConfig) {
	for _, k := range slices.Sorted(maps.Keys(a.Env)) {
		if !slices.ContainsFunc(out.Envs, func(e *api.KeyValue) bool { return e.Key == k }) {
			out.Envs = append(out.Envs, &api.KeyValue{Key: k, Value: []byte(a.Env[k])})
		}
	}
	for _, v := range a.Mounts {
		if !slices.ContainsFunc(out.Mounts, func(x *api.Mount) bool { return x.ContainerPath == v.Container }) {
			out.Mounts = append(out.Mounts, &api.Mount{HostPath: v.Host, ContainerPath: v.Container, Readonly: v.ReadOnly})
		}
	}
	for _, n := range a.Nodes {
		if !slices.ContainsFunc(out.Devices, func(x *api.Device) bool { return x.ContainerPath == n.Container }) {
			out.Devices = append(out.Devices, &api.Device{HostPath: n.Host, ContainerPath: n.Container, Permissions: n.Permissions})
		}
	}
	for k, v := range a.Annotations {
		if _, there := out.Annotations[k]; !there { // does not replace the agent's annotations
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	AddCDI(out, a.CDI)
	if sec := out.GetLinux().GetSecurityContext(); sec != nil {
		for _, g := range a.Groups {
			if !slices.Contains(sec.SupplementalGroups, g) {
				sec.SupplementalGroups = append(sec.SupplementalGroups, g)
			}
		}
	}
}

// AddCDI adds CDI devices to a container's configuration, without duplicates.
func AddCDI(out *api.ContainerConfig, names []string) {
	for _, n := range names {
		if !slices.ContainsFunc(out.CDIDevices, func(d *api.CDIDevice) bool { return d.Name == n }) {
			out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: n})
		}
	}
}

// check returns an error for an allocation that is invalid or exceeds the limits.
func (a *Allocation) check() error {
	for kind, n := range map[string]int{
		"variables": len(a.Env), "mounts": len(a.Mounts), "device nodes": len(a.Nodes),
		"annotations": len(a.Annotations), "CDI devices": len(a.CDI), "groups": len(a.Groups),
	} {
		if n > maxEntries {
			return fmt.Errorf("the provider of a device returned %d %s, but the maximum is %d", n, kind, maxEntries)
		}
	}
	texts := slices.Clone(a.CDI)
	for _, m := range []map[string]string{a.Env, a.Annotations} {
		for k, v := range m {
			if k == "" || strings.ContainsAny(k, "=\x00") {
				return fmt.Errorf("the provider of a device returned a variable or annotation with the invalid name %.80q", k)
			}
			texts = append(texts, k, v)
		}
	}
	var paths []string
	for _, v := range a.Mounts {
		paths = append(paths, v.Host, v.Container)
	}
	for _, n := range a.Nodes {
		if n.Permissions == "" || strings.Trim(n.Permissions, "rwm") != "" || len(n.Permissions) > 3 {
			return fmt.Errorf("the provider of device node %.80q returned the permissions %.80q: only r, w and m are valid",
				n.Host, n.Permissions)
		}
		paths = append(paths, n.Host, n.Container)
	}
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("the provider of a device returned the path %.80q, which is not absolute", p)
		}
	}
	sum := 0
	for _, t := range append(texts, paths...) {
		if sum += len(t); sum > maxAllocation {
			return fmt.Errorf("the provider of a device returned names, paths and values of more than %d bytes", maxAllocation)
		}
		if len(t) > maxText || strings.Contains(t, "\x00") {
			return errors.New("the provider of a device returned a name, path or value that is too long or contains a zero byte")
		}
	}
	return nil
}

// Ended releases the devices of a pod that has ended.
func (m *Manager) Ended(ctx context.Context, pod *v1.Pod) error { return m.Release(ctx, pod.UID) }

// Release releases the devices of a pod that was deleted.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	_, has := m.grants[uid]
	m.mu.Unlock()
	if !has {
		return nil
	}
	if err := m.c.Store.TakeDevices(ctx, uid); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.grants, uid)
	m.mu.Unlock()
	m.c.Changed()
	return nil
}

// Status returns the health of a container's devices (KEP-4680), or nil if it has none.
func (m *Manager) Status(uid types.UID, container string) (out []v1.ResourceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, g := range m.grants[uid] {
		if k.container != container || g.pending {
			continue
		}
		st := v1.ResourceStatus{Name: v1.ResourceName(k.resource)}
		for _, id := range g.IDs {
			h := v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: v1.ResourceHealthStatusHealthy}
			if r := m.resources[k.resource]; r != nil {
				// As in a kubelet, a device that is not listed counts as healthy.
				if d, there := r.devices[id]; there && !d.Healthy {
					h.Health = v1.ResourceHealthStatusUnhealthy
					if d.Message != "" {
						h.Message = new(d.Message)
					}
				}
			}
			st.Resources = append(st.Resources, h)
		}
		out = append(out, st)
	}
	sorting.By(out, func(a, b v1.ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
