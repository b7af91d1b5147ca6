package storage

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/edge/store"
)

// A Resizer tells the API server how the file system of a claim's volume grows. edge/object's
// Cache is one.
type Resizer interface {
	// Resizing says that the driver of this node is at it.
	Resizing(ctx context.Context, claim *v1.PersistentVolumeClaim) error
	// Resized says that it has grown.
	Resized(ctx context.Context, claim *v1.PersistentVolumeClaim, to resource.Quantity) error
	// ResizeFailed says that it has not; infeasible: and will not, so that the controller may
	// make another size of it.
	ResizeFailed(ctx context.Context, claim *v1.PersistentVolumeClaim, infeasible bool, message string) error
}

// grown gives the size that a claim's volume has got and its file system has not; nil: it
// has not grown. A controller may say that the node has to expand the volume after the node has:
// it sees the volume's new size sooner. Then the node says again that it has.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims
func grown(v Volume) *resource.Quantity {
	if v.claim == nil {
		return nil
	}
	to, ok := v.Capacity[v1.ResourceStorage]
	has, told := v.claim.Status.Capacity[v1.ResourceStorage]
	if !ok || !told || to.Cmp(has) < 0 || to.Cmp(has) == 0 && !pending(v) {
		return nil
	}
	switch resizing(v) {
	case "", v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return &to
	}
	return nil // it is the controller's turn
}

// pending reports whether the API server waits for the node to expand a volume.
func pending(v Volume) bool {
	switch resizing(v) {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	}
	return slices.ContainsFunc(v.claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
	})
}

// resizing is whose turn it is to make a volume grow; empty: its resizer does not say, as
// those of before KEP-1790.
func resizing(v Volume) v1.ClaimResourceStatus {
	return v.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
}

// Refresh lets the file system of a volume grow that has become larger while the pod uses
// it. It does not wait for that.
func (k *Keeper) Refresh(pod *v1.Pod, vol *v1.Volume, _ string) error {
	v, d, err := k.resolve(pod, vol)
	if err != nil || grown(v) == nil {
		return nil //nolint:nilerr // who starts the pod says so
	}
	u := Use{Pod: pod, Volume: vol.Name, Path: k.path(pod, v, d)}
	if k.isUp(store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: u.Path}) && expands(d) && k.beginExpansion(v, pod.UID) {
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), mountTime)
			defer stop()
			k.expand(ctx, v, d, u)
		}()
	}
	return nil
}

// expands reports whether a driver makes volumes grow.
func expands(d Driver) bool {
	_, ok := d.(Expander)
	return ok
}

// expand has a volume's driver make use of what it has grown by. That this fails is no
// reason not to run: it is tried again. The caller has begun the expansion.
func (k *Keeper) expand(ctx context.Context, v Volume, d Driver, u Use) {
	e, _ := d.(Expander)
	to := grown(v)
	r := k.cfg.Resizer
	err := k.alone(ctx, v.ID, u.Pod.UID, func(ctx context.Context) error {
		staged := ""
		if s, ok := d.(Stager); ok {
			staged = s.StagePath(v)
		}
		if v.ReadOnly {
			k.event(u.Pod, v1.EventTypeWarning, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", v.Name))
		} else {
			if r != nil && resizing(v) == v1.PersistentVolumeClaimNodeResizePending {
				if err := r.Resizing(ctx, v.claim); err != nil {
					return fmt.Errorf("MountVolume.NodeExpandVolume failed to mark node expansion in progress: %w", err)
				}
			}
			if err := k.counted("volume_fs_resize", d.Plugin(), v, func() error { return e.Expand(ctx, v, staged, u.Path, v.Capacity) }); err != nil {
				return fmt.Errorf("MountVolume.NodeExpandVolume failed for volume %q : %w", v.Name, err)
			}
			k.event(u.Pod, v1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", v.Name, k.cfg.Node))
		}
		if r != nil {
			return r.Resized(ctx, v.claim, *to)
		}
		return nil
	})
	if err == nil {
		k.forgetExpansion(use{v.ID, u.Pod.UID})
		return
	}
	k.event(u.Pod, v1.EventTypeWarning, "VolumeResizeFailed", err.Error())
	k.cfg.Log.Warn("a volume has grown and its file system has not", "pod", u.Pod.Namespace+"/"+u.Pod.Name, "uid", u.Pod.UID, "volume", v.Name, "error", err)
	if err := k.expandLater(ctx, v, u, r, err); err != nil {
		k.cfg.Log.Warn("the API server does not know that a volume cannot grow", "volume", v.Name, "error", err)
	}
}

func (k *Keeper) event(pod *v1.Pod, eventType, reason, message string) {
	if k.cfg.Event != nil {
		k.cfg.Event(pod, eventType, reason, message)
	}
}
