package csi

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/retry"
)

// limitExceeded is the kubelet's reason for a pod that fails because of the driver's volume limit.
const limitExceeded = "VolumeAttachmentLimitExceeded"

// needsAttach reports whether the attach-detach controller must attach the volume to this node before the
// driver can mount it. It returns true for a PersistentVolume, unless the CSIDriver object sets
// attachRequired to false.
//
// https://kubernetes-csi.github.io/docs/skip-attach.html
func (d *Drivers) needsAttach(pod *v1.Pod, v storage.Volume) (bool, error) {
	if v.Inline {
		return false, nil
	}
	o, err := d.driverObject(pod, v.Source.CSI.Driver)
	if err != nil {
		return false, err
	}
	return o == nil || o.Spec.AttachRequired == nil || *o.Spec.AttachRequired, nil
}

// WaitAttached waits until the attach-detach controller and the driver's external-attacher have attached the volume.
// It first waits until the API server has accepted a Node status whose volumesInUse contains the volume. Otherwise the controller could
// detach the volume although it is mounted. The link is needed for this only before the first mount, so pods can start after a reboot
// without a link.
func (d *Drivers) WaitAttached(ctx context.Context, v storage.Volume, u storage.Use) error {
	if err := checkSource(v); err != nil {
		return err
	}
	needs, err := d.needsAttach(u.Pod, v)
	if err != nil || !needs {
		return err
	}
	if d.cfg.InUse != nil && !u.Recorded {
		if err := d.cfg.InUse(ctx, v.ID); err != nil {
			return fmt.Errorf("volume has not been added to the list of VolumesInUse in the node's volume status: %w", err)
		}
	}
	again := retry.Backoff{FirstWindow: time.Second, MaxWindow: 10 * time.Second}
	for {
		a, err := d.cfg.Objects.RenewAttachment(ctx, u.Pod, d.attachmentName(v))
		if err == nil {
			err = checkAttached(a)
			if limitReached(a) {
				d.requestLimit(v.Source.CSI.Driver)
			}
		}
		if err == nil {
			return nil
		}
		if _, ended := again.Wait(ctx, 0, nil); ended != nil {
			if errors.Is(ended, context.DeadlineExceeded) {
				d.rejectOverLimit(v, u, a)
			}
			return fmt.Errorf("volume %s is not attached for volume attachment %s: %w", v.Source.CSI.VolumeHandle, d.attachmentName(v), err)
		}
	}
}

// rejectOverLimit ends a pod whose volume was not attached in time because the node has reached the driver's volume
// limit. The pod's controller then creates another pod, which the scheduler places on a node with a free
// slot. It does nothing unless the CSIDriver object sets an update period for the limit.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/4876-mutable-csinode-allocatable
func (d *Drivers) rejectOverLimit(v storage.Volume, u storage.Use, a *storagev1.VolumeAttachment) {
	if d.cfg.Reject == nil || a == nil || checkAttached(a) == nil || !limitReached(a) {
		return
	}
	if o, err := d.driverObject(u.Pod, v.Source.CSI.Driver); err != nil || limitPeriod(o) == 0 {
		return
	}
	d.cfg.Reject(u.Pod, limitExceeded, fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. "+
		"unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]s",
		u.Volume, a.Status.AttachError.Message))
}

// checkAttached returns an error with the reason why a volume is not attached. It returns nil for an attached volume.
func checkAttached(a *storagev1.VolumeAttachment) error {
	switch {
	case a.DeletionTimestamp != nil:
		return errors.New("volume attachment is being deleted")
	case a.Status.Attached:
		return nil
	case a.Status.AttachError != nil:
		return errors.New(a.Status.AttachError.Message)
	}
	return errors.New("the driver has not attached it yet")
}

// publishContext returns the attachment metadata that the driver's controller reported for a
// volume.
func (d *Drivers) publishContext(v storage.Volume, pod *v1.Pod) (map[string]string, error) {
	needs, err := d.needsAttach(pod, v)
	if err != nil || !needs {
		return nil, err
	}
	a, err := d.cfg.Objects.Attachment(pod, d.attachmentName(v))
	if err != nil {
		return nil, fmt.Errorf("read the VolumeAttachment: %w", err)
	}
	return a.Status.AttachmentMetadata, nil
}
