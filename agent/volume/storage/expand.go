package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/edge/store"
)

// A Resizer reports the progress of expanding a claim's volume to the API server. *object.Cache implements it.
type Resizer interface {
	// ReportResizing reports that the node has started to expand the volume.
	ReportResizing(ctx context.Context, claim *v1.PersistentVolumeClaim) error
	// ReportResized reports that the node has expanded the volume.
	ReportResized(ctx context.Context, claim *v1.PersistentVolumeClaim, to resource.Quantity) error
	// ResizeFailed reports a failed expansion. If the expansion is infeasible, a retry cannot succeed, and the
	// controller may select another size.
	ResizeFailed(ctx context.Context, claim *v1.PersistentVolumeClaim, infeasible bool, message string) error
}

// sizeToExpand returns the size to which the node must expand the claim's volume, or nil if no expansion is needed. The
// node may see the new size before the controller requests the expansion. When the controller requests it later, the
// node reports the expansion again. The parameter size is the result of sizeOnNode: if several nodes use the volume, each of
// them expands it, although the claim has the new size after the first of them has reported.
//
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims
func sizeToExpand(v Volume, size int64) *resource.Quantity {
	if v.claim == nil {
		return nil
	}
	to, ok := v.Capacity[v1.ResourceStorage]
	has, told := v.claim.Status.Capacity[v1.ResourceStorage]
	if !ok || !told || to.Cmp(has) < 0 || !mustReport(v) && (size == 0 || size >= to.Value()) {
		return nil
	}
	switch resizeStatus(v) {
	case "", v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return &to
	}
	return nil // the controller must resize the volume first
}

// mustReport reports whether the status of the claim does not contain the expansion to the size of the volume yet.
func mustReport(v Volume) bool {
	return v.Capacity.Storage().Cmp(*v.claim.Status.Capacity.Storage()) > 0 || resizePending(v)
}

// sizeOnNode returns the size of the claim's volume on this node. If the row of no pod contains it, it is that of the claim, because the
// volume is mounted just now. It returns 0 if there is no claim.
func (k *Mounter) sizeOnNode(v Volume) (size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.rows {
		if key.Volume == v.ID {
			size = max(size, r.Size)
		}
	}
	if size == 0 && v.claim != nil {
		size = v.claim.Status.Capacity.Storage().Value()
	}
	return size
}

// recordSize records the size of a volume on this node in the rows of its pods. The caller holds the volume's lock.
func (k *Mounter) recordSize(ctx context.Context, id string, size int64) error {
	var smaller []store.VolumeKey
	k.mu.Lock()
	for key, r := range k.rows {
		if key.Volume == id && key.Pod != "" && r.Size < size {
			smaller = append(smaller, key)
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, key := range smaller {
		errs = append(errs, k.updateRow(ctx, key, func(r *record) { r.Size = size }))
	}
	return errors.Join(errs...)
}

// completeRow adds the size of the claim to a row that contains none, and reports whether it has done so. It does not store the row.
func (k *Mounter) completeRow(key store.VolumeKey, size int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.rows[key]
	if !ok || r.Size != 0 || size == 0 {
		return false
	}
	r.Size = size
	k.rows[key] = r
	return true
}

// resizePending reports whether the status of the claim requests an expansion by the node.
func resizePending(v Volume) bool {
	switch resizeStatus(v) {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	}
	return slices.ContainsFunc(v.claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
	})
}

// resizeStatus returns the claim's resize status. It is empty if the claim's resizer does not support KEP-1790.
func resizeStatus(v Volume) v1.ClaimResourceStatus {
	return v.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
}

// Refresh starts the expansion of the file system of a volume that has grown while the pod uses it. It does not wait
// for the result. If the objects of the volume were missing when Adopt was called, Refresh registers the volume with its driver.
func (k *Mounter) Refresh(pod *v1.Pod, vol *v1.Volume, _ string) error {
	v, d, err := k.resolveVolume(pod, vol)
	if err != nil {
		return nil //nolint:nilerr // starting the pod reports the error
	}
	u := Use{Pod: pod, Volume: vol.Name, Path: k.volumePath(pod, v, d)}
	key, size := store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: u.Path}, k.sizeOnNode(v)
	completed := k.completeRow(key, size)
	// A driver that unmounts the volume would not forget it again. A driver that mounts the volume registers it itself.
	k.ifIdle(volumeUse{v.ID, pod.UID}, func(ctx context.Context) {
		k.adoptVolume(v, d, u)
		if completed {
			_ = k.updateRow(ctx, key, func(*record) {}) // if this fails, the size is known until the agent ends
		}
	})
	if sizeToExpand(v, size) != nil && k.isUp(key) && canExpand(d) && k.beginExpansion(v, pod.UID) {
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), mountTime)
			defer stop()
			k.expandVolume(ctx, v, d, u)
		}()
	}
	return nil
}

// canExpand reports whether a driver can expand volumes.
func canExpand(d Driver) bool {
	_, ok := d.(Expander)
	return ok
}

// expandVolume calls the driver to expand a volume. A failure does not affect the pod. The expansion is retried later. The
// caller must have called beginExpansion.
func (k *Mounter) expandVolume(ctx context.Context, v Volume, d Driver, u Use) {
	e, _ := d.(Expander)
	r, report, readOnly := k.cfg.Resizer, k.cfg.Resizer != nil && mustReport(v), false
	err := k.withLock(ctx, v.ID, u.Pod.UID, func(ctx context.Context) error {
		staged := ""
		if s, ok := d.(Stager); ok {
			staged = s.StagePath(v)
		}
		if v.ReadOnly { // another pod must expand the volume, so the claim must not say that this was done
			k.recordEvent(u.Pod, v1.EventTypeWarning, "FileSystemResizeFailed",
				fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", v.Name))
			readOnly = true
			return nil
		}
		if report && resizeStatus(v) == v1.PersistentVolumeClaimNodeResizePending {
			if err := r.ReportResizing(ctx, v.claim); err != nil {
				return fmt.Errorf("MountVolume.NodeExpandVolume failed to mark node expansion in progress: %w", err)
			}
		}
		if err := k.observeCall("volume_fs_resize", d.Plugin(), v,
			func() error { return e.Expand(ctx, v, staged, u.Path, v.Capacity) }); err != nil {
			return fmt.Errorf("MountVolume.NodeExpandVolume failed for volume %q : %w", v.Name, err)
		}
		k.recordEvent(u.Pod, v1.EventTypeNormal, "FileSystemResizeSuccessful",
			fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", v.Name, k.cfg.Node))
		if err := k.recordSize(ctx, v.ID, v.Capacity.Storage().Value()); err != nil || !report {
			return err
		}
		return r.ReportResized(ctx, v.claim, *v.Capacity.Storage())
	})
	if err == nil && readOnly {
		k.skipExpansion(v, u.Pod.UID)
		return
	}
	if err == nil {
		k.forgetExpansion(volumeUse{v.ID, u.Pod.UID})
		return
	}
	k.recordEvent(u.Pod, v1.EventTypeWarning, "VolumeResizeFailed", err.Error())
	k.cfg.Log.Warn("cannot expand the file system of a volume", "pod", u.Pod.Namespace+"/"+u.Pod.Name, "uid",
		u.Pod.UID, "volume", v.Name, "error", err)
	if err := k.scheduleExpansion(ctx, v, u, r, err); err != nil {
		k.cfg.Log.Warn("cannot report a failed expansion to the API server", "volume", v.Name, "error", err)
	}
}

func (k *Mounter) recordEvent(pod *v1.Pod, eventType, reason, message string) {
	if k.cfg.Event != nil {
		k.cfg.Event(pod, eventType, reason, message)
	}
}
