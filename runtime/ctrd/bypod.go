package ctrd

import "github.com/islet-edge/islet/internal/keys"

// byPod indexes objects by the pod UID in their labels, and then by their ID. The agent lists the
// sandboxes and containers of one pod after each step. With the index, this needs no scan of all
// objects. Runtime.mu guards the index.
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

// findCandidates returns the objects that a label selector may match: the objects of one pod if the
// selector has a pod UID, and otherwise all objects.
func (b byPod[T]) findCandidates(all map[string]*T, selector map[string]string) map[string]*T {
	if uid := selector[keys.PodUID]; uid != "" {
		return b[uid]
	}
	return all
}
