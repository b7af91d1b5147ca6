package devicemanager

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Start calls the providers of a container's devices before the container starts. It returns an error if a device is
// absent or unhealthy, if a provider returns an error, or if devices are being allocated to the container.
func (m *Manager) Start(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	m.mu.Lock()
	err := m.checkFinished(pod.UID, ctr.Name)
	m.mu.Unlock()
	if err != nil {
		return err
	}
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
