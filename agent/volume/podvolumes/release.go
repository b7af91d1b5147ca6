package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// escapePlugin converts a plugin's name into a path element, like a kubelet.
func escapePlugin(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// checkUID returns an error for a UID that could lead out of the pods' directory. UIDs are read from labels and file
// names.
func checkUID(uid types.UID) error {
	if s := string(uid); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory name", s)
	}
	return nil
}

// Release unmounts everything below the pod's directory. It removes the directory when nothing is mounted there any
// more. It does not follow symbolic links.
func (v *Volumes) Release(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if err := v.tearDown(ctx, uid); err != nil {
		return err
	}
	points := v.volumePaths(uid)
	v.releaseQuotas(points)
	if err := mounts.RemoveMounted(v.podDir(uid), points); err != nil {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	return nil
}

// volumePaths returns the paths at which volumes of the pod may be mounted.
func (v *Volumes) volumePaths(uid types.UID) []string {
	points, err := fs.Glob(os.DirFS(v.podDir(uid)), "volumes/*/*")
	if err != nil {
		return nil // RemoveMounted then uses the mount table
	}
	for i, p := range points {
		points[i] = filepath.Join(v.podDir(uid), p)
	}
	return points
}

// Unmount unmounts the volumes of kinds that track their mounts, because the machine shuts down. The other volumes and all files stay.
func (v *Volumes) Unmount(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	return v.tearDown(ctx, uid)
}

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
