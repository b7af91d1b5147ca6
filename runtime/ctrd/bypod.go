package ctrd

import "github.com/islet-edge/islet/internal/keys"

// byPod indexes objects by the pod UID in their labels, then by their own ID. The agent lists one
// pod's sandboxes and containers after each step, so this saves a scan of all of them. Runtime.mu
// guards it.
type byPod[T any] map[string]map[string]*T

func (b byPod[T]) put(labels map[string]string, id string, t *T) {
	uid := labels[keys.PodUID]
	if uid == "" {
		return
	}
	if b[uid] == nil {
		b[uid] = map[string]*T{}
	}
	b[uid][id] = t
}

func (b byPod[T]) drop(labels map[string]string, id string) {
	uid := labels[keys.PodUID]
	delete(b[uid], id)
	if len(b[uid]) == 0 {
		delete(b, uid)
	}
}

// candidates returns the objects that a label selector may match: those of its pod, or all if it
// names none.
func (b byPod[T]) candidates(all map[string]*T, selector map[string]string) map[string]*T {
	if uid := selector[keys.PodUID]; uid != "" {
		return b[uid]
	}
	return all
}
