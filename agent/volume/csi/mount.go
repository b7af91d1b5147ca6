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
	"github.com/islet-edge/islet/runtime/mounts"
)

// Plugin is the name in paths.
func (*Drivers) Plugin() string { return pluginName }

// Serves reports whether a volume is a CSI driver's.
func (*Drivers) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }

// Stage mounts a volume for the node, if its driver does that; else it makes the directory
// only, as a kubelet does.
func (d *Drivers) Stage(ctx context.Context, v storage.Volume, path string, u storage.Use) error {
	if err := check(v); err != nil {
		return err
	}
	s := v.Source.CSI
	n, err := d.find(s.Driver, u.Pod.UID)
	if err != nil {
		return err
	}
	attached, err := d.publishContext(v, u.Pod)
	if err != nil {
		return err
	}
	secrets, err := d.secrets(u.Pod, "NodeStageSecretRef", s.NodeStageSecretRef)
	if err != nil {
		return err
	}
	// What is there from now on says that the driver may have been asked.
	if err := os.MkdirAll(path, dirMode); err != nil {
		return fmt.Errorf("make the directory to stage at: %w", err)
	}
	if !v.Block {
		if err := d.save(filepath.Dir(path), v, ""); err != nil {
			return err
		}
	}
	if !n.can[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	_, err = n.node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
		VolumeId: s.VolumeHandle, PublishContext: attached, StagingTargetPath: path, VolumeCapability: n.capability(v, u.Pod),
		Secrets: secrets, VolumeContext: s.VolumeAttributes,
	})
	return err
}

// Unstage undoes Stage.
func (d *Drivers) Unstage(ctx context.Context, v storage.Volume, path string) error {
	if err := check(v); err != nil {
		return err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // never staged, or unstaged before
	}
	n, err := d.find(v.Source.CSI.Driver, "")
	if err != nil {
		return err
	}
	if n.can[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		ctx, stop := context.WithTimeout(ctx, callTime)
		defer stop()
		if _, err := n.node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: v.Source.CSI.VolumeHandle, StagingTargetPath: path}); err != nil {
			return err
		}
	}
	if v.Block {
		if err := d.clear(path, false); err != nil {
			return err
		}
		return removeEmpty(d.own("volumeDevices", "publish", v.Name))
	}
	return d.clear(path, true)
}

// Publish mounts a volume for a pod.
func (d *Drivers) Publish(ctx context.Context, v storage.Volume, staged string, u storage.Use) error {
	if err := check(v); err != nil {
		return err
	}
	p, err := d.taken(ctx, v, staged, u)
	if err != nil {
		return err
	}
	defer p.free()
	object, err := d.publish(ctx, p)
	if err != nil {
		return err
	}
	if object != nil && isTrue(object.Spec.RequiresRepublish) {
		d.mu.Lock()
		p.repeat = true
		d.mu.Unlock()
		select {
		case d.again <- struct{}{}:
		default:
		}
	}
	return nil
}

// publish asks the driver. The caller has the use.
func (d *Drivers) publish(ctx context.Context, p *published) (*storagev1.CSIDriver, error) {
	v, u, s := p.volume, p.use, p.volume.Source.CSI
	n, err := d.find(s.Driver, u.Pod.UID)
	if err != nil {
		return nil, err
	}
	object, err := d.object(u.Pod, s.Driver)
	if err != nil {
		return nil, err
	}
	if err := serves(object, v.Inline, s.Driver); err != nil {
		return nil, err
	}
	req := &spec.NodePublishVolumeRequest{
		VolumeId: handleOf(v, u.Pod.UID), TargetPath: u.Path, VolumeCapability: n.capability(v, u.Pod), Readonly: v.ReadOnly, VolumeContext: s.VolumeAttributes,
	}
	if n.can[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		req.StagingTargetPath = p.staged
	}
	if !v.Inline {
		if req.PublishContext, err = d.publishContext(v, u.Pod); err != nil {
			return nil, err
		}
	}
	if req.Secrets, err = d.secrets(u.Pod, "NodePublishSecretRef", s.NodePublishSecretRef); err != nil {
		return nil, err
	}
	if err := d.inform(ctx, object, v, u.Pod, req); err != nil {
		return nil, err
	}
	if v.Block {
		req.TargetPath = d.publishPath(v, u.Pod.UID)
	}
	if err := os.MkdirAll(filepath.Dir(req.TargetPath), dirMode); err != nil {
		return nil, fmt.Errorf("make the directory of the volume: %w", err)
	}
	// What is there from now on says that the driver may have been asked.
	if v.Block {
		err = link(req.TargetPath, u.Path)
	} else {
		err = d.save(filepath.Dir(u.Path), v, u.Pod.UID)
	}
	if err != nil {
		return nil, err
	}
	if period(object) > 0 && !n.timed.Load() { // it has one since
		d.askLimit(s.Driver)
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	if _, err := n.node.NodePublishVolume(ctx, req); err != nil {
		return nil, err
	}
	// Its server may be gone, though the driver says nothing of that.
	return object, storage.Leave(ctx, "publish", req.TargetPath, func() error {
		if err := mounts.Answers(req.TargetPath); err != nil {
			return err
		}
		return d.published(v, req.TargetPath)
	})
}

// published checks that a driver has made what it says. A link is not that: it leads to what
// is no volume, whose files would be the pod's, and get its fsGroup.
func (d *Drivers) published(v storage.Volume, target string) error {
	fi, err := os.Lstat(target)
	switch name := v.Source.CSI.Driver; {
	case err != nil:
		return fmt.Errorf("driver %s says that the volume is published, but it is not there: %w", name, err)
	case !v.Block && !fi.IsDir():
		return fmt.Errorf("driver %s has published something else than a directory at %s", name, target)
	case v.Block && fi.Mode().Type() != fs.ModeDevice:
		return fmt.Errorf("driver %s has published something else than a block device at %s", name, target)
	}
	return nil
}

// link makes a block volume's device appear in the pod's directory.
func link(target, path string) error {
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

// asked reports whether a driver may have been asked to publish a volume.
func asked(v storage.Volume, path string) bool {
	if !v.Block {
		path = filepath.Join(filepath.Dir(path), dataFile)
	}
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Unpublish undoes Publish.
func (d *Drivers) Unpublish(ctx context.Context, v storage.Volume, uid types.UID, path string) error {
	if err := check(v); err != nil {
		return err
	}
	if err := d.drop(ctx, path, uid); err != nil {
		return err
	}
	if !asked(v, path) { // the driver may never come
		return nil
	}
	n, err := d.find(v.Source.CSI.Driver, "")
	if err != nil {
		return err
	}
	target := path
	if v.Block {
		target = d.publishPath(v, uid)
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	if _, err := n.node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: handleOf(v, uid), TargetPath: target}); err != nil {
		return err
	}
	if err := d.clear(target, !v.Block); err != nil || !v.Block {
		return err
	}
	_ = removeEmpty(filepath.Dir(target)) // unless other pods have the device
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the link to the device: %w", err)
	}
	return nil
}
