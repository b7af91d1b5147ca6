package csi

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/islet-edge/islet/agent/storage"
	"github.com/islet-edge/islet/retry"
)

// attaches says whether somebody else attaches a driver's volumes to this node. Without a
// CSIDriver somebody does.
// https://kubernetes-csi.github.io/docs/skip-attach.html
func (d *Drivers) attaches(pod *v1.Pod, v storage.Volume) (bool, error) {
	if v.Inline {
		return false, nil
	}
	o, err := d.object(pod, v.Source.CSI.Driver)
	if err != nil {
		return false, err
	}
	return o == nil || o.Spec.AttachRequired == nil || *o.Spec.AttachRequired, nil
}

// Attached waits until the attach-detach controller and the driver's attacher have attached
// a volume. Before that the Node says that the volume is in use, so that nobody detaches it.
func (d *Drivers) Attached(ctx context.Context, v storage.Volume, u storage.Use) error {
	if err := check(v); err != nil {
		return err
	}
	needs, err := d.attaches(u.Pod, v)
	if err != nil || !needs {
		return err
	}
	if d.cfg.InUse != nil {
		if err := d.cfg.InUse(ctx, v.ID); err != nil {
			return fmt.Errorf("volume has not been added to the list of VolumesInUse in the node's volume status: %w", err)
		}
	}
	again := retry.Backoff{First: time.Second, Most: 10 * time.Second}
	for {
		a, err := d.cfg.Objects.RenewAttachment(ctx, u.Pod, d.attachment(v))
		if err == nil {
			err = verify(a)
			if exhausted(a) {
				d.askLimit(v.Source.CSI.Driver)
			}
		}
		if err == nil {
			return nil
		}
		if _, ended := again.Wait(ctx, 0, nil); ended != nil {
			return fmt.Errorf("volume %s is not attached for volume attachment %s: %w", v.Source.CSI.VolumeHandle, d.attachment(v), err)
		}
	}
}

// verify says why a volume is not attached.
func verify(a *storagev1.VolumeAttachment) error {
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

// publishContext is what the driver's controller said when it attached a volume.
func (d *Drivers) publishContext(v storage.Volume, pod *v1.Pod) (map[string]string, error) {
	needs, err := d.attaches(pod, v)
	if err != nil || !needs {
		return nil, err
	}
	a, err := d.cfg.Objects.Attachment(pod, d.attachment(v))
	if err != nil {
		return nil, fmt.Errorf("read the VolumeAttachment: %w", err)
	}
	return a.Status.AttachmentMetadata, nil
}
