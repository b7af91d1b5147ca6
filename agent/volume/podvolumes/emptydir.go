package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// emptyDir is a directory on disk, in memory or in huge pages that exists as long as its pod.
// https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
type emptyDir struct {
	memory    *tmpfsMounter
	quota     Quota // nil if there are no quotas
	podMemory func() int64
	modes     bool // emptyDir.mode has an effect
}

func (emptyDir) Plugin() string             { return "kubernetes.io/empty-dir" }
func (emptyDir) Serves(vol *v1.Volume) bool { return vol.EmptyDir != nil }

func (e emptyDir) SetUp(_ context.Context, pod *v1.Pod, vol *v1.Volume, dir string) (string, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := e.makeDir(dir, pod, vol); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	switch vol.EmptyDir.Medium {
	case v1.StorageMediumDefault:
		if l := vol.EmptyDir.SizeLimit; l != nil && l.Sign() > 0 && e.quota != nil {
			if _, err := e.quota.Limit(dir, l.Value()); err != nil && e.memory.log != nil { // for example because the disk has no quotas
				e.memory.log.Warn("cannot enforce the sizeLimit of a volume", "pod",
					pod.Namespace+"/"+pod.Name, "uid", pod.UID, "volume", vol.Name, "error", err)
			}
		}
		return dir, nil
	case v1.StorageMediumMemory:
		there, err := isMountPoint(dir)
		if err != nil || there {
			return dir, err
		}
		return dir, e.memory.mountAt(dir, e.dirOptions(pod, vol)+tmpfsSize(pod, vol, e.podMemory))
	}
	if isHugePages(vol.EmptyDir.Medium) {
		options, err := hugeOptions(pod, vol)
		if err != nil {
			return "", err
		}
		there, err := isMountPoint(dir)
		if err != nil || there {
			return dir, err
		}
		return dir, mountHuge(dir, e.dirOptions(pod, vol)+options)
	}
	return "", fmt.Errorf("this node does not serve emptyDir of medium %s", vol.EmptyDir.Medium)
}

// releaseQuotas releases the quotas of a pod's volumes before they are removed.
func (v *Volumes) releaseQuotas(points []string) {
	for _, p := range points {
		if v.cfg.Quota == nil || filepath.Base(filepath.Dir(p)) != escapePlugin(emptyDir{}.Plugin()) {
			continue
		}
		if err := v.cfg.Quota.RemoveLimit(p); err != nil && v.cfg.Log != nil { // a quota that is not released does no harm
			v.cfg.Log.Warn("cannot release the quota of a volume", "path", p, "error", err)
		}
	}
}

// volumeMode returns the mode of a volume's directory. The default for a volume on disk is 0777. The default for a
// file system in memory is 1777, the mode of /tmp. A kubelet has the same defaults. The volume may set
// another mode. The pod's fsGroup may always write, and owns all new files.
// https://kep.k8s.io/5502
func (e emptyDir) volumeMode(pod *v1.Pod, vol *v1.Volume) uint32 {
	const sticky, groupWrites = 0o1000, 0o2770
	mode := uint32(0o777)
	if vol.EmptyDir.Medium != v1.StorageMediumDefault {
		mode |= sticky
	}
	if m := vol.EmptyDir.Mode; m != nil && e.modes {
		mode = uint32(*m) & (0o777 | sticky) //nolint:gosec // the sign is masked
	}
	if _, ok := fsGroup(pod); ok {
		mode |= groupWrites
	}
	return mode
}

// makeDir creates the directory of a volume. The directory has a temporary name until it is complete.
func (e emptyDir) makeDir(dir string, pod *v1.Pod, vol *v1.Volume) error {
	if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
		return err
	}
	unfinished := dir + ".new" // not a valid volume name
	if err := os.Mkdir(unfinished, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if gid, ok := fsGroup(pod); ok {
		if err := os.Chown(unfinished, -1, gid); err != nil {
			return err
		}
	}
	if err := unix.Chmod(unfinished, e.volumeMode(pod, vol)); err != nil {
		return &fs.PathError{Op: "chmod", Path: unfinished, Err: err}
	}
	return os.Rename(unfinished, dir)
}

// dirOptions returns the mount options for the mode and the group of a file system in memory.
func (e emptyDir) dirOptions(pod *v1.Pod, vol *v1.Volume) string {
	options := fmt.Sprintf("mode=%o", e.volumeMode(pod, vol))
	if gid, ok := fsGroup(pod); ok {
		options += fmt.Sprintf(",gid=%d", gid)
	}
	return options
}

func fsGroup(pod *v1.Pod) (gid int, ok bool) {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// tmpfsSize returns the mount option for the size of a tmpfs. The size is the smallest of three: the volume's sizeLimit, the
// pod's memory limit, and the memory that is available to all pods (KEP-1967). The pages of a tmpfs count as memory
// of the pod.
func tmpfsSize(pod *v1.Pod, vol *v1.Volume, podMemory func() int64) string {
	size := int64(0)
	bound := func(to int64) {
		if to > 0 && (size == 0 || to < size) {
			size = to
		}
	}
	if l := vol.EmptyDir.SizeLimit; l != nil {
		bound(l.Value())
	}
	if demand.IsLimited(pod, v1.ResourceMemory) {
		limits := demand.Limits(pod)
		bound(limits.Memory().Value())
	}
	if podMemory != nil {
		bound(podMemory())
	}
	if size == 0 {
		return ""
	}
	return fmt.Sprintf(",size=%d", size)
}
