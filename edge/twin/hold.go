package twin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

// A Hold blocks the start of pods that would write to the same volumes as another machine with
// the name of this node. It is a pod hook: see package agent/pod/hook.
type Hold struct {
	Twin *Twin // nil if the node has no cluster
	// Running reports whether a pod runs. Running pods are not blocked, and their containers
	// restart.
	Running func(types.UID) bool
}

// Name implements the hook.
func (Hold) Name() string { return "twin" }

// Prepare returns an error for a pod of the API server that writes to a volume outside of this
// machine, while another machine has the node's name. Pods that run already are exempt.
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
	return fmt.Errorf("volume %q is not mounted, because two machines would write to it: %s; islet takeover gives the name to this machine",
		name, why)
}

// Held returns the reason why pods with shared volumes do not start, or "" if they do.
func (t *Twin) Held() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != barred {
		return ""
	}
	return t.why()
}

// sharedVolume returns the name of a volume that the pod can write to and that another machine
// could mount too; empty: there is none. Only PersistentVolumeClaims and CSI volumes can lie
// outside of this machine.
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
