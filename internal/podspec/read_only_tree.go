package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// ReadOnlyTree reports whether a mount and all mounts below it must be read-only (KEP-3857). The caller passes a function that reports
// whether the pod's runtime supports this. The function is called only for a mount that requests recursive read-only mode. The errors have
// a kubelet's wording.
func ReadOnlyTree(m *v1.VolumeMount, supported func() bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if p := m.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *p)
	}
	can := supported()
	if *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled && !can {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
	}
	return can, nil
}
