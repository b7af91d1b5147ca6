package objects

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// environments are those of containers that ran when the node found its database lost. A
// container that ends while the API server does not answer starts again with what it had.
type environments struct {
	mu  sync.Mutex
	all map[types.UID]map[string][]*api.KeyValue // by container; nil: the database was not lost
}

// KeepEnvironment keeps the environment of a container that runs, as KEY=VALUE, in memory.
func (o *Objects) KeepEnvironment(uid types.UID, container string, env []string) {
	var kept []*api.KeyValue
	for _, e := range env {
		if key, value, ok := strings.Cut(e, "="); ok {
			kept = append(kept, &api.KeyValue{Key: key, Value: []byte(value)})
		}
	}
	b := &o.before
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[types.UID]map[string][]*api.KeyValue{}
	}
	if b.all[uid] == nil {
		b.all[uid] = map[string][]*api.KeyValue{}
	}
	b.all[uid][container] = kept
}

// EnvironmentBefore returns what KeepEnvironment has kept; nil: nothing.
func (o *Objects) EnvironmentBefore(uid types.UID, container string) []*api.KeyValue {
	b := &o.before
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[uid][container]
}
