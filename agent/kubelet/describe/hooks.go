package describe

import (
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/api"
)

// failedHooks returns a pod's failed postStart hooks, sorted by container. The status of the pod shows the
// failure only until the container waits for its restart. As with a kubelet, the event does not contain the
// reason for the failure.
func failedHooks(failed map[plan.Key]plan.Failure) (out []api.FailedHook) {
	for k, f := range failed {
		if k.Op == plan.PostStart {
			out = append(out, api.FailedHook{Container: k.Container, At: f.At, Message: f.Message})
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each element type.
	sort.Slice(out, func(i, j int) bool { return out[i].Container < out[j].Container })
	return out
}

// addHookReasons adds the reasons for failed hooks to the troubles of their containers.
func (a *Describer) addHookReasons(list []api.Trouble) {
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
