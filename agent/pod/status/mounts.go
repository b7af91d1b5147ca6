package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// mountStatuses returns the volume mounts of a container, and for each read-only mount whether it is recursively read-only.
// https://kubernetes.io/docs/concepts/storage/volumes/#recursive-read-only-mounts
func (m *maker) mountStatuses(c *v1.Container) (out []v1.VolumeMountStatus) {
	for i := range c.VolumeMounts {
		vm := &c.VolumeMounts[i]
		st := v1.VolumeMountStatus{Name: vm.Name, MountPath: vm.MountPath, ReadOnly: vm.ReadOnly}
		if vm.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if tree, err := podspec.ReadOnlyTree(vm, m.readOnlyTrees); err == nil && tree { // the container does not start after an error
				mode = v1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		out = append(out, st)
	}
	return out
}

func (m *maker) readOnlyTrees() bool {
	return m.host.ReadOnlyTrees != nil && m.host.ReadOnlyTrees(m.pod)
}
