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
