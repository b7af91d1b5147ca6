package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// mountTime is the maximum time for which a caller waits for the setup of a pod's volume. After that, the setup fails and is retried,
	// as in a kubelet. The type operation describes the steps that continue.
	mountTime = 2*time.Minute + 3*time.Second
	probeTime = 10 * time.Second
)

// Plugin returns the name of the kind. Paths contain the names of the drivers instead.
func (k *Mounter) Plugin() string { return "islet.dev/storage" }

// Serves reports whether the volume needs a Driver.
func (k *Mounter) Serves(vol *v1.Volume) bool {
	return vol.PersistentVolumeClaim != nil || vol.Ephemeral != nil || vol.NFS != nil || vol.ISCSI != nil || vol.CSI != nil
}

// SetUp mounts a pod's volume, unless this process has already mounted it. It returns the volume's path when
// the volume responds.
func (k *Mounter) SetUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, _ string) (string, error) {
	path, err := k.setUp(ctx, pod, vol)
	return path, countLabelError(err)
}

func (k *Mounter) setUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (string, error) {
	v, d, err := k.resolveVolume(pod, vol)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, mountTime)
	defer stop()
	u := Use{Pod: pod, Volume: vol.Name, Path: k.volumePath(pod, v, d)}
	err = k.mountVolume(ctx, v, d, u)
	if err == nil {
		err = k.probeVolume(ctx, v, d, u.Path)
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBusy)) {
			err = k.describeStep(volumeUse{v.ID, pod.UID}, err)
			return "", mountError(vol.Name, "", fmt.Errorf("timed out waiting for the condition: %w", err))
		}
		return "", err
	}
	if sizeToExpand(v, k.sizeOnNode(v)) != nil && canExpand(d) && k.beginExpansion(v, pod.UID) {
		k.expandVolume(ctx, v, d, u)
	}
	return u.Path, nil
}

// MountPath returns the path at which SetUp has mounted a volume, and how containers mount it. The path of a block volume
// is its device. MountPath never blocks.
func (k *Mounter) MountPath(pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error) {
	v, d, err := k.resolveVolume(pod, vol)
	if err != nil {
		return "", false, false, err
	}
	path = k.volumePath(pod, v, d)
	k.mu.Lock()
	ready := slices.ContainsFunc(k.readyPaths(pod.UID), func(p string) bool { return p == path })
	k.mu.Unlock()
	if !ready {
		return "", false, false, fmt.Errorf("volume %q is not mounted", vol.Name)
	}
	if v.Block {
		path, err = resolveDevice(path)
		return path, v.ReadOnly, false, err
	}
	return path, v.ReadOnly, k.belowRoot(path) && v.Source.NFS == nil && v.Label == "", nil
}

// readyPaths returns the paths of a pod's mounted volumes. The caller holds mu.
func (k *Mounter) readyPaths(uid types.UID) (paths []string) {
	for key := range k.ready {
		if key.Pod == string(uid) {
			paths = append(paths, key.Path)
		}
	}
	return paths
}

// resolveDevice resolves the link to a block volume's device.
func resolveDevice(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find the device of the volume: %w", err)
	}
	return real, checkBlock(real)
}

// hasMounted reports whether a pod's volume is or may be mounted. If so, later changes of the claim do not affect the
// volume.
func (k *Mounter) hasMounted(pod *v1.Pod, volume string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.rows {
		if key.Pod == string(pod.UID) && r.Volume.Name == volume {
			return true
		}
	}
	return false
}

// HasPod reports whether a volume of the pod is or may be mounted.
func (k *Mounter) HasPod(uid types.UID) bool { return len(k.podVolumes(uid)) > 0 }

// Pods returns the pods with volumes that are or may be mounted.
func (k *Mounter) Pods() []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	uids := map[types.UID]bool{}
	for key := range k.rows {
		if key.Pod != "" {
			uids[types.UID(key.Pod)] = true
		}
	}
	out := make([]types.UID, 0, len(uids))
	for uid := range uids {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// TearDown unmounts all volumes of a pod, and unstages the volumes that no other pod uses. No container of the pod
// may be running. If it returns an error, volumes may still be mounted, and the pod's files must not be removed.
func (k *Mounter) TearDown(ctx context.Context, uid types.UID) error {
	return k.unmountPod(ctx, uid)
}

// Sweep unmounts volumes that are staged for the node but not used by any pod.
func (k *Mounter) Sweep(ctx context.Context) error { return k.sweepUnused(ctx) }
