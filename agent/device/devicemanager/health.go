package devicemanager

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/sorting"
)

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

// Close disconnects the provider. Its devices become unhealthy at once and leave the Node's capacity after
// capacityGrace. A second call does nothing.
func (l *Link) Close() {
	m := l.m
	m.mu.Lock()
	r := m.resources[l.resource]
	if r.link != l {
		m.mu.Unlock()
		return
	}
	before := r.devices
	r.link, r.goneSince, r.devices = nil, time.Now(), make(map[string]Device, len(before))
	for id, d := range before {
		d.Healthy, d.Message = false, "its provider is not connected"
		r.devices[id] = d
	}
	touched := m.affectedPods(l.resource, before, r.devices)
	m.expireLater(l.resource)
	m.mu.Unlock()
	m.notifyChanged(true, touched)
}

// sameHealth reports whether two lists contain the same devices with the same health.
func sameHealth(a, b map[string]Device) bool {
	return maps.EqualFunc(a, b, func(x, y Device) bool { return x.Healthy == y.Healthy })
}

// affectedPods lists the pods that have at least one changed device. A device has changed if it was added or removed,
// or if its health is different. The caller holds mu.
func (m *Manager) affectedPods(name string, before, now map[string]Device) (out []types.UID) {
	for uid, grants := range m.grants {
		for k, g := range grants {
			changed := func(id string) bool {
				a, had := before[id]
				b, has := now[id]
				return had != has || a.Healthy != b.Healthy || a.Message != b.Message
			}
			if k.resource == name && slices.ContainsFunc(g.IDs, changed) {
				out = append(out, uid)
				break
			}
		}
	}
	return out
}

func (m *Manager) notifyChanged(node bool, pods []types.UID) {
	if node {
		m.c.Changed()
	}
	for _, uid := range pods {
		m.c.PodChanged(uid)
	}
}
