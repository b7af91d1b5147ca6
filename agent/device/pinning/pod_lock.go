package pinning

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// A podLock is locked while resources are assigned to one pod or released from it.
type podLock struct {
	place chan struct{} // capacity 1
	users int           // callers that have or want the lock; Manager.mu guards this field
}

// lockPod locks one pod, until unlock is called.
func (m *Manager) lockPod(ctx context.Context, uid types.UID) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[uid]
	if l == nil {
		l = &podLock{place: make(chan struct{}, 1)}
		m.locks[uid] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, uid)
		}
	}
	select {
	case l.place <- struct{}{}:
		return func() { <-l.place; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
