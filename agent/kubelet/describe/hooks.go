package describe

import (
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/api"
)

// failedHooks returns a pod's failed postStart hooks by container. The pod's status shows the
// failure only until the container waits for its restart; the event, as a kubelet's, never contains
// the reason.
func failedHooks(failed map[plan.Key]plan.Failure) (out []api.FailedHook) {
	for k, f := range failed {
		if k.Op == plan.PostStart {
			out = append(out, api.FailedHook{Container: k.Container, At: f.At, Message: f.Message})
		}
	}
	// Not slices.SortFunc: each type that it sorts costs 20 KB of the binary.
	sort.Slice(out, func(i, j int) bool { return out[i].Container < out[j].Container })
	return out
}

// explain adds the failed hook to a pod's trouble.
func (a *Describer) explain(list []api.Trouble) {
	uids := map[string]types.UID{}
	for _, p := range a.c.Desired.List() {
		uids[p.Pod.Namespace+"/"+p.Pod.Name] = p.Pod.UID
	}
	for i := range list {
		t := &list[i]
		for _, h := range failedHooks(a.c.Input(uids[t.Namespace+"/"+t.Name]).Failed) {
			if h.Container == t.Container && !strings.Contains(t.Message, h.Message) {
				t.Message = strings.TrimPrefix(t.Message+"; "+h.Message, "; ")
			}
		}
	}
}
