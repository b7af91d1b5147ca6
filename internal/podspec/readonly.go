package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// ReadOnlyTree says whether a mount is to be read-only with all that is mounted below it
// (KEP-3857). possible says whether the pod's runtime can do it; it is asked only for
// mounts that want it. The error has a kubelet's words.
func ReadOnlyTree(m *v1.VolumeMount, possible func() bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if p := m.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *p)
	}
	can := possible()
	if *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !can {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
	}
	return can, nil
}
