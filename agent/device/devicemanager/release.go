package devicemanager

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ended releases the devices of a pod that has ended.
func (m *Manager) Ended(ctx context.Context, pod *v1.Pod) error { return m.Release(ctx, pod.UID) }

// Release releases the devices of a pod that was deleted.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	var names []string
	for k := range m.grants[uid] {
		names = append(names, k.resource)
	}
	m.mu.Unlock()
	if names == nil {
		return nil
	}
	if err := m.c.Store.TakeDevices(ctx, uid, names...); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.grants, uid)
	m.mu.Unlock()
	m.c.Changed()
	return nil
}
