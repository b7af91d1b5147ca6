package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// Ended unmounts and removes the volumes of a pod that has no running container, including emptyDir volumes.
// Ended keeps the termination logs for the pod's status. A kubelet does the same.
// https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
func (v *Volumes) Ended(ctx context.Context, pod *v1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	if err := v.tearDown(ctx, pod.UID); err != nil {
		return err
	}
	points := v.volumePaths(pod.UID)
	v.releaseQuotas(points)
	var errs []error
	for _, d := range []string{"volume-subpaths", "volumes"} {
		if err := mounts.RemoveMounted(filepath.Join(v.podDir(pod.UID), d), points); err != nil {
			errs = append(errs, fmt.Errorf("remove the volumes of a pod that ended: %w", err))
		}
	}
	return errors.Join(errs...)
}
