package twin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

// A Hold prevents the start of pods that write to shared volumes while another machine has the name of this node, because both machines
// would write to the same volumes. It implements a hook of package agent/pod/hook.
type Hold struct {
	Twin *Twin // nil if the node has no cluster
	// IsRunning reports whether a pod is running. A running pod is not blocked, so its containers are restarted when they fail.
	IsRunning func(types.UID) bool
}

// Name returns the name of the hook.
func (Hold) Name() string { return "twin" }

// Prepare delays the start of a pod of the API server that writes to a shared volume. It returns an error while another machine has the
// node's name. It never returns an error for a running pod.
func (h Hold) Prepare(_ context.Context, pod *v1.Pod) error {
	if h.Twin == nil || pod.Annotations[keys.ConfigSource] != keys.SourceAPI {
		return nil
	}
	name := sharedVolume(pod)
	if name == "" {
		return nil
	}
	why := h.Twin.HoldReason()
	if why == "" || h.IsRunning(pod.UID) {
		return nil
	}
	return fmt.Errorf("volume %q is not mounted, because two machines would write to it: %s; islet takeover gives the name to this machine",
		name, why)
}

// HoldReason returns the reason why pods with shared volumes do not start, or "" if they may start.
func (t *Twin) HoldReason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != barredState && (t.state != newcomer || !t.rec.Restored) {
		return ""
	}
	return t.whyNotOwner()
}

// sharedVolume returns the name of a writable volume of the pod that another machine could mount, too. It returns "" if the pod has no such
// volume. Only PersistentVolumeClaims and CSI volumes can be outside of this machine.
func sharedVolume(pod *v1.Pod) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		pvc, csi := v.PersistentVolumeClaim, v.CSI
		if v.Ephemeral != nil || pvc != nil && !pvc.ReadOnly || csi != nil && (csi.ReadOnly == nil || !*csi.ReadOnly) {
			return v.Name
		}
	}
	return ""
}
