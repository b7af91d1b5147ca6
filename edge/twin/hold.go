package twin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

// A Hold keeps pods from starting that would write to the volumes of another machine with the
// name of this node. It joins a pod's life as package agent/pod/hook says.
type Hold struct {
	Twin *Twin // nil: the node stands alone
	// Running reports whether a pod runs: what runs goes on, and its containers are restarted.
	Running func(types.UID) bool
}

// Name is the hook's.
func (Hold) Name() string { return "twin" }

// Prepare refuses a pod of the API server that is about to start, writes to a volume outside of
// this machine, and is wanted by a node whose name another machine has.
func (h Hold) Prepare(_ context.Context, pod *v1.Pod) error {
	if h.Twin == nil || pod.Annotations[keys.ConfigSource] != keys.SourceAPI {
		return nil
	}
	name := sharedVolume(pod)
	if name == "" {
		return nil
	}
	why := h.Twin.Held()
	if why == "" || h.Running(pod.UID) {
		return nil
	}
	return fmt.Errorf("volume %q is not mounted, since two machines would write to it: %s; islet takeover gives the name to this machine", name, why)
}

// Held says why pods with shared volumes do not start; empty: they do.
func (t *Twin) Held() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != barred {
		return ""
	}
	return t.why()
}

// sharedVolume names a volume of a pod that another machine with the same pod would write to as
// well; empty: there is none. Volumes of claims and of CSI drivers are all that islet has and that
// can lie outside of this machine.
func sharedVolume(pod *v1.Pod) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		claim, csi := v.PersistentVolumeClaim, v.CSI
		if v.Ephemeral != nil || claim != nil && !claim.ReadOnly || csi != nil && (csi.ReadOnly == nil || !*csi.ReadOnly) {
			return v.Name
		}
	}
	return ""
}
