package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// emptyDir is a directory on disk, in memory or in huge pages that exists as long as its pod.
// https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
type emptyDir struct {
	memory    *memory
	quota     Quota // nil if there are no quotas
	podMemory func() int64
}

func (emptyDir) Plugin() string             { return "kubernetes.io/empty-dir" }
func (emptyDir) Serves(vol *v1.Volume) bool { return vol.EmptyDir != nil }

func (e emptyDir) SetUp(_ context.Context, pod *v1.Pod, vol *v1.Volume, dir string) (string, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeOpen(dir, pod); err != nil {
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
		there, err := mounted(dir)
		if err != nil || there {
			return dir, err
		}
		return dir, e.memory.mountAt(dir, tmpfsOptions(pod, vol, e.podMemory))
	}
	if hugePages(vol.EmptyDir.Medium) {
		options, err := hugeOptions(pod, vol)
		if err != nil {
			return "", err
		}
		there, err := mounted(dir)
		if err != nil || there {
			return dir, err
		}
		return dir, mountHuge(dir, options)
	}
	return "", fmt.Errorf("this node does not serve emptyDir of medium %s", vol.EmptyDir.Medium)
}

// releaseQuotas releases the quotas of a pod's volumes before they are removed.
func (v *Volumes) releaseQuotas(points []string) {
	for _, p := range points {
		if v.cfg.Quota == nil || filepath.Base(filepath.Dir(p)) != escape(emptyDir{}.Plugin()) {
			continue
		}
		if err := v.cfg.Quota.Forget(p); err != nil && v.cfg.Log != nil { // a quota that is not released does no harm
			v.cfg.Log.Warn("cannot release the quota of a volume", "path", p, "error", err)
		}
	}
}

// makeOpen creates a directory that every user can write to and whose files get the pod's fsGroup. The directory has
// a temporary name until it is complete.
func makeOpen(dir string, pod *v1.Pod) error {
	if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
		return err
	}
	unfinished := dir + ".new" // not a valid volume name
	if err := os.Mkdir(unfinished, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mode := fs.FileMode(0o777)
	if gid, ok := fsGroup(pod); ok {
		if err := os.Chown(unfinished, -1, gid); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	if err := os.Chmod(unfinished, mode); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

func fsGroup(pod *v1.Pod) (gid int, ok bool) {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// tmpfsOptions returns the mount options of a tmpfs. Its size is the smallest of three: the volume's sizeLimit, the
// pod's memory limit, and the memory that is available to all pods (KEP-1967). The pages of a tmpfs count as memory
// of the pod.
func tmpfsOptions(pod *v1.Pod, vol *v1.Volume, podMemory func() int64) string {
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
	options := "mode=1777" // the mode of /tmp, and of volumes of a kubelet
	if gid, ok := fsGroup(pod); ok {
		options = fmt.Sprintf("mode=3777,gid=%d", gid)
	}
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	return options
}
