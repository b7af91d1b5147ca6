package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Plugin returns the name of the volume plugin, which is used in paths.
func (*Drivers) Plugin() string { return pluginName }

// Serves reports whether a CSI driver provides the volume.
func (*Drivers) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }

// Stage calls NodeStageVolume if the driver has the capability STAGE_UNSTAGE_VOLUME. Otherwise it only
// creates the directory, like a kubelet.
func (d *Drivers) Stage(ctx context.Context, v storage.Volume, path string, u storage.Use) error {
	if err := checkSource(v); err != nil {
		return err
	}
	s := v.Source.CSI
	n, err := d.findDriver(s.Driver, u.Pod.UID)
	if err != nil {
		return err
	}
	attached, err := d.publishContext(v, u.Pod)
	if err != nil {
		return err
	}
	secrets, err := d.readSecret(u.Pod, "NodeStageSecretRef", s.NodeStageSecretRef)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return fmt.Errorf("make the directory to stage at: %w", err)
	}
	if err := d.saveData(filepath.Dir(d.stagedData(v, path)), v, ""); err != nil { // before the driver is called, see mayBeStaged
		return err
	}
	if !n.capabilities[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	_, err = n.node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
		VolumeId: s.VolumeHandle, PublishContext: attached, StagingTargetPath: path, VolumeCapability: n.volumeCapability(v, u.Pod),
		Secrets: secrets, VolumeContext: s.VolumeAttributes,
	})
	return err
}

// Unstage reverts Stage.
func (d *Drivers) Unstage(ctx context.Context, v storage.Volume, path string) error {
	if err := checkSource(v); err != nil {
		return checkNotMounted(path, err)
	}
	if !d.mayBeStaged(v, path) {
		return nil
	}
	if data := d.stagedData(v, path); v.Block && !exists(data) { // staged by an earlier version; see mayBeStaged
		_ = d.saveData(filepath.Dir(data), v, "")
	}
	n, err := d.findDriver(v.Source.CSI.Driver, "")
	if err != nil {
		return err
	}
	if n.capabilities[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		ctx, stop := context.WithTimeout(ctx, callTime)
		defer stop()
		if _, err := n.node.NodeUnstageVolume(ctx,
			&spec.NodeUnstageVolumeRequest{VolumeId: v.Source.CSI.VolumeHandle, StagingTargetPath: path}); err != nil {
			return err
		}
	}
	if !v.Block {
		return d.unmountAndRemove(path, true)
	}
	if err := d.unmountAndRemove(path, false); err != nil {
		return err
	}
	_ = removeEmpty(d.pluginPath("volumeDevices", "publish", v.Name)) // a lost database may have left other files there
	return d.removeDeviceData(v)
}

// mayBeStaged reports whether the driver may have been called to stage the volume, and has not confirmed since then that it has unstaged
// the volume. The directory at path is no proof that it has, because the driver may remove the directory before its last step. The file
// vol_data.json is removed after the driver has confirmed. Earlier versions wrote none for a block volume.
func (d *Drivers) mayBeStaged(v storage.Volume, path string) bool {
	return exists(d.stagedData(v, path)) || exists(path)
}

// exists reports whether a file exists or may exist.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Publish mounts a staged volume for a pod.
func (d *Drivers) Publish(ctx context.Context, v storage.Volume, staged string, u storage.Use) error {
	if err := checkSource(v); err != nil {
		return err
	}
	p, err := d.acquireUse(ctx, v, staged, u)
	if err != nil {
		return err
	}
	defer p.unlock()
	object, err := d.publishVolume(ctx, p)
	if err != nil {
		return err
	}
	if object != nil && podspec.IsTrue(object.Spec.RequiresRepublish) {
		d.mu.Lock()
		p.needsRepublish = true
		d.mu.Unlock()
		select {
		case d.republishSignal <- struct{}{}:
		default:
		}
	}
	return nil
}

// publishVolume calls NodePublishVolume. The caller must have called acquireUse to obtain p.
func (d *Drivers) publishVolume(ctx context.Context, p *publishedVolume) (*storagev1.CSIDriver, error) {
	v, u, s := p.volume, p.use, p.volume.Source.CSI
	n, err := d.findDriver(s.Driver, u.Pod.UID)
	if err != nil {
		return nil, err
	}
	object, err := d.driverObject(u.Pod, s.Driver)
	if err != nil {
		return nil, err
	}
	if err := checkLifecycle(object, v.Inline, s.Driver); err != nil {
		return nil, err
	}
	req := &spec.NodePublishVolumeRequest{
		VolumeId: volumeID(v, u.Pod.UID), TargetPath: u.Path, VolumeCapability: n.volumeCapability(v, u.Pod),
		Readonly: v.ReadOnly, VolumeContext: s.VolumeAttributes,
	}
	if n.capabilities[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		req.StagingTargetPath = p.staged
	}
	if !v.Inline {
		if req.PublishContext, err = d.publishContext(v, u.Pod); err != nil {
			return nil, err
		}
	}
	if req.Secrets, err = d.readSecret(u.Pod, "NodePublishSecretRef", s.NodePublishSecretRef); err != nil {
		return nil, err
	}
	if err := d.addPodInfo(ctx, object, v, u.Pod, req); err != nil {
		return nil, err
	}
	if v.Block {
		req.TargetPath = d.publishPath(v, u.Pod.UID)
	}
	if err := os.MkdirAll(filepath.Dir(req.TargetPath), dirMode); err != nil {
		return nil, fmt.Errorf("make the directory of the volume: %w", err)
	}
	// If this file or link exists, the driver may already have been called.
	if v.Block {
		err = linkDevice(req.TargetPath, u.Path)
	} else {
		err = d.saveData(filepath.Dir(u.Path), v, u.Pod.UID)
	}
	if err != nil {
		return nil, err
	}
	if limitPeriod(object) > 0 && !n.hasPeriod.Load() { // the update period was set after the driver registered
		d.requestLimit(s.Driver)
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	if _, err := n.node.NodePublishVolume(ctx, req); err != nil {
		return nil, err
	}
	// The mount must be checked, because the driver may report success even if the volume's server does not
	// respond.
	return object, storage.CallOrAbandon(ctx, "publish", req.TargetPath, func() error {
		if err := mounts.CheckResponding(req.TargetPath); err != nil {
			return err
		}
		return d.checkPublished(v, req.TargetPath)
	})
}

// checkPublished verifies that target is a directory or a block device. It returns an error for a symbolic link,
// which could lead to files outside the volume. If the link were mounted, the pod could read these files, and their
// group would be changed to the pod's fsGroup.
func (d *Drivers) checkPublished(v storage.Volume, target string) error {
	fi, err := os.Lstat(target)
	switch name := v.Source.CSI.Driver; {
	case err != nil:
		return fmt.Errorf("driver %s reported success, but the volume is not mounted: %w", name, err)
	case !v.Block && !fi.IsDir():
		return fmt.Errorf("driver %s did not publish a directory at %s", name, target)
	case v.Block && fi.Mode().Type() != fs.ModeDevice:
		return fmt.Errorf("driver %s did not publish a block device at %s", name, target)
	}
	return nil
}

// linkDevice creates a link to the device of a block volume in the pod's directory.
func linkDevice(target, path string) error {
	if to, err := os.Readlink(path); err == nil && to == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return fmt.Errorf("make the directory of the pod's devices: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the link to the device: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("link the device: %w", err)
	}
	return nil
}

// mayBePublished reports whether the driver may have been called to publish the volume.
func mayBePublished(v storage.Volume, path string) bool {
	if !v.Block {
		path = filepath.Join(filepath.Dir(path), dataFile)
	}
	return exists(path)
}

// checkNotMounted returns nil if nothing is mounted at path, and otherwise the error err. The driver of a volume is unknown if its
// vol_data.json is damaged.
func checkNotMounted(path string, err error) error {
	if there, failed := mounts.FindTopmost(path); failed == nil && there == nil {
		return nil
	}
	return err
}

// Unpublish reverts Publish.
func (d *Drivers) Unpublish(ctx context.Context, v storage.Volume, uid types.UID, path string) error {
	target := path
	if v.Block {
		target = d.publishPath(v, uid)
	}
	if err := checkSource(v); err != nil {
		return checkNotMounted(target, err)
	}
	if err := d.forgetUse(ctx, path, uid); err != nil {
		return err
	}
	if !mayBePublished(v, path) { // the driver was never called, so there is no need to wait for it
		return nil
	}
	n, err := d.findDriver(v.Source.CSI.Driver, uid)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	if _, err := n.node.NodeUnpublishVolume(ctx,
		&spec.NodeUnpublishVolumeRequest{VolumeId: volumeID(v, uid), TargetPath: target}); err != nil {
		return err
	}
	if err := d.unmountAndRemove(target, !v.Block); err != nil || !v.Block {
		return err
	}
	_ = removeEmpty(filepath.Dir(target)) // fails while other pods use the device
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the link to the device: %w", err)
	}
	return nil
}
