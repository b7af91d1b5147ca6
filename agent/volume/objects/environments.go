package objects

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// savedEnvironments contains the environments of the containers that were running when the node detected the loss of
// its database. If such a container ends while the API server is unreachable, the container is restarted with the
// same environment.
type savedEnvironments struct {
	mu          sync.Mutex
	byContainer map[types.UID]map[string][]*api.KeyValue // by pod and container; nil if the database was not lost
}

// KeepEnvironment stores the environment of a running container in memory. The environment consists of KEY=VALUE pairs.
func (o *Objects) KeepEnvironment(uid types.UID, container string, env []string) {
	var kept []*api.KeyValue
	for _, e := range env {
		if key, value, ok := strings.Cut(e, "="); ok {
			kept = append(kept, &api.KeyValue{Key: key, Value: []byte(value)})
		}
	}
	b := &o.environments
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byContainer == nil {
		b.byContainer = map[types.UID]map[string][]*api.KeyValue{}
	}
	if b.byContainer[uid] == nil {
		b.byContainer[uid] = map[string][]*api.KeyValue{}
	}
	b.byContainer[uid][container] = kept
}

// EnvironmentBefore returns the environment that KeepEnvironment has stored, or nil if there is none.
func (o *Objects) EnvironmentBefore(uid types.UID, container string) []*api.KeyValue {
	b := &o.environments
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byContainer[uid][container]
}
