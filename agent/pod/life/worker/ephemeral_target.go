package worker

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// targetID returns the ID of the container whose PID namespace an ephemeral container joins. The ID is empty if the
// ephemeral container has no targetContainerName.
func targetID(in plan.Input, name string) (string, error) {
	i := slices.IndexFunc(in.Want.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == name })
	if i < 0 || in.Want.Spec.EphemeralContainers[i].TargetContainerName == "" {
		return "", nil
	}
	wanted := in.Want.Spec.EphemeralContainers[i].TargetContainerName
	c, ok := in.Observed.Newest(wanted)
	if !ok {
		return "", fmt.Errorf("unable to find target container %v", wanted)
	}
	return c.ID, nil
}
