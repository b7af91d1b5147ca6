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
	// mountTime is how long a pod waits for one of its volumes before that fails and is
	// tried again, as a kubelet has it.
	mountTime = 2*time.Minute + 3*time.Second
	probeTime = 10 * time.Second
)

// Plugin is the name of the kind, which is in no path: its drivers' are.
func (k *Keeper) Plugin() string { return "islet.dev/storage" }

// Serves reports whether a volume is mounted by a driver.
func (k *Keeper) Serves(vol *v1.Volume) bool {
	return vol.PersistentVolumeClaim != nil || vol.Ephemeral != nil || vol.NFS != nil || vol.ISCSI != nil || vol.CSI != nil
}

// SetUp mounts a pod's volume and gives where it is, once it answers. A volume that this run
// of the agent has mounted already is not mounted again.
func (k *Keeper) SetUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, _ string) (string, error) {
	v, d, err := k.resolve(pod, vol)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, mountTime)
	defer stop()
	u := Use{Pod: pod, Volume: vol.Name, Path: k.path(pod, v, d)}
	err = k.mount(ctx, v, d, u)
	if err == nil {
		err = k.probe(ctx, v, d, u.Path)
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBusy)) {
			return "", unmounted(vol.Name, "", fmt.Errorf("timed out waiting for the condition: %w", err))
		}
		return "", err
	}
	if grown(v) != nil && expands(d) && k.beginExpansion(v, pod.UID) {
		k.expand(ctx, v, d, u)
	}
	return u.Path, nil
}

// Where gives where a volume is that SetUp has mounted, and how containers get it; of a
// block volume it is the path of a device. It waits for nothing.
func (k *Keeper) Where(pod *v1.Pod, vol *v1.Volume) (path string, readOnly, relabel bool, err error) {
	v, d, err := k.resolve(pod, vol)
	if err != nil {
		return "", false, false, err
	}
	path = k.path(pod, v, d)
	k.mu.Lock()
	ready := slices.ContainsFunc(k.readyOf(pod.UID), func(p string) bool { return p == path })
	k.mu.Unlock()
	if !ready {
		return "", false, false, fmt.Errorf("volume %q is not mounted", vol.Name)
	}
	if v.Block {
		path, err = device(path)
		return path, v.ReadOnly, false, err
	}
	return path, v.ReadOnly, k.ours(path) && v.Source.NFS == nil && !v.labelled, nil
}

// readyOf lists the places of a pod's volumes. The caller holds mu.
func (k *Keeper) readyOf(uid types.UID) (paths []string) {
	for key := range k.ready {
		if key.Pod == string(uid) {
			paths = append(paths, key.Path)
		}
	}
	return paths
}

// device resolves the link to a block volume's device.
func device(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("find the device of the volume: %w", err)
	}
	return real, checkBlock(real)
}

// mounts reports whether a pod has a volume already, or may: what the API says of its
// claim now does not matter to it any more.
func (k *Keeper) mounts(pod *v1.Pod, volume string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.rows {
		if key.Pod == string(pod.UID) && r.Volume.Name == volume {
			return true
		}
	}
	return false
}

// Has reports whether anything of a pod is mounted, or may be.
func (k *Keeper) Has(uid types.UID) bool { return len(k.of(uid)) > 0 }

// Pods lists the pods of which something is mounted, or may be.
func (k *Keeper) Pods() []types.UID {
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

// TearDown unmounts all volumes of a pod, of which only the UID need be known, and what is
// mounted for nobody then. Nothing of the pod runs any more. An error says that something
// is mounted still, and that nothing of the pod may be removed.
func (k *Keeper) TearDown(ctx context.Context, uid types.UID) error {
	return k.release(ctx, uid)
}

// Sweep unmounts what is mounted for the whole node and used by no pod.
func (k *Keeper) Sweep(ctx context.Context) error { return k.sweep(ctx) }
