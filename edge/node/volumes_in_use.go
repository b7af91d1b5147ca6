package node

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// setInUse records the volumes that the API server lists as in use.
func (n *Node) setInUse(ids []v1.UniqueVolumeName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(n.inUse, ids) {
		return
	}
	n.inUse = slices.Clone(ids)
	if n.inUseChanged != nil {
		close(n.inUseChanged)
		n.inUseChanged = nil
	}
}

// InUse waits for a report that lists a volume of Facts.VolumesInUse as in use and that the API server accepts after this call has begun.
// It returns an error if ctx ends first.
func (n *Node) InUse(ctx context.Context, id v1.UniqueVolumeName) error {
	n.mu.Lock() // an earlier use may have ended, and the report that is running may not list the volume any more
	n.inUse = slices.DeleteFunc(n.inUse, func(other v1.UniqueVolumeName) bool { return other == id })
	n.mu.Unlock()
	for {
		n.mu.Lock()
		inUse := slices.Contains(n.inUse, id)
		if !inUse && n.inUseChanged == nil {
			n.inUseChanged = make(chan struct{})
		}
		changed := n.inUseChanged
		n.mu.Unlock()
		if inUse {
			return nil
		}
		n.Poke()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
