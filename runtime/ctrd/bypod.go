package ctrd

import "github.com/islet-edge/islet/internal/keys"

// byPod finds what has the label of a pod, by the pod's UID and its own ID. An agent lists
// a pod's sandboxes and containers after each step: of hundreds one is meant. Runtime.mu
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
	if delete(b[uid], id); len(b[uid]) == 0 {
		delete(b, uid)
	}
}

// among gives those of all that a selector of labels may let through.
func (b byPod[T]) among(all map[string]*T, selector map[string]string) map[string]*T {
	if uid := selector[keys.PodUID]; uid != "" {
		return b[uid]
	}
	return all
}
