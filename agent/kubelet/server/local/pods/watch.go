package pods

import (
	"net/http"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// watchPods sends all pods, and then each change of a pod until the client disconnects.
func (ps *Pods) watchPods(w http.ResponseWriter, r *http.Request) {
	out := response.NewLines(w, ps.IdleTimeout)
	seen := map[types.UID]*v1.Pod{}
	for first := true; ; first = false {
		changed := ps.Lister.Changed()
		now := make(map[types.UID]*v1.Pod, len(seen))
		for _, p := range podlist.Sort(ps.Lister.List()) {
			now[p.UID] = p
			switch old := seen[p.UID]; {
			case old == nil:
				out.Send(api.PodEvent{Type: "ADDED", Pod: p})
			case old != p && !reflect.DeepEqual(old, p):
				out.Send(api.PodEvent{Type: "MODIFIED", Pod: p})
			}
		}
		for uid, p := range seen {
			if now[uid] == nil {
				out.Send(api.PodEvent{Type: "DELETED", Pod: p})
			}
		}
		if first {
			out.Send(api.PodEvent{Type: "SYNCED"})
		}
		seen = now
		if out.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(response.AliveInterval):
			out.Send(api.PodEvent{Type: api.EventAlive})
		case <-r.Context().Done():
			out.Abort()
		}
	}
}
