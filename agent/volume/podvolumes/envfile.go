package podvolumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/untrusted"
)

// EnvFile reads a file from an emptyDir volume of the pod. A file of more than limit bytes is an error. The
// container's environment variables are set from this file. Links and special files that a container has created
// cannot make EnvFile read outside the volume or block.
func (v *Volumes) EnvFile(pod *v1.Pod, volume, path string, limit int64) ([]byte, error) {
	if err := checkUID(pod.UID); err != nil {
		return nil, err
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		k := v.kindOf(vol)
		if vol.Name != volume || vol.EmptyDir == nil || k == nil {
			continue
		}
		b, err := untrusted.ReadInRoot(v.volumeDir(pod, vol, k), path, limit)
		if err != nil {
			return nil, fmt.Errorf("file %q of volume %q: %w", path, volume, err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("cannot find the emptyDir volume %q", volume)
}
