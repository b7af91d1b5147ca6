package csi

import (
	"context"
	"errors"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// Expand calls NodeExpandVolume. It does nothing if the driver does not have the capability EXPAND_VOLUME.
func (d *Drivers) Expand(ctx context.Context, v storage.Volume, staged, published string, to v1.ResourceList) error {
	if err := checkSource(v); err != nil {
		return err
	}
	uid := d.podUID(published)
	n, err := d.findDriver(v.Source.CSI.Driver, uid)
	if err != nil {
		return err
	}
	if !n.capabilities[spec.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil
	}
	req := &spec.NodeExpandVolumeRequest{
		VolumeId: volumeID(v, uid), VolumePath: published, StagingTargetPath: staged, VolumeCapability: n.volumeCapability(v, nil),
		CapacityRange: &spec.CapacityRange{RequiredBytes: to.Storage().Value()},
	}
	if v.Block {
		req.VolumePath = d.publishPath(v, uid)
	}
	if !n.capabilities[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		req.StagingTargetPath = ""
	}
	if ref := v.Source.CSI.NodeExpandSecretRef; ref != nil {
		p := d.publishedAt(published)
		if p == nil {
			return errors.New("the pod that uses the volume is not known yet")
		}
		if req.Secrets, err = d.readSecret(p.use.Pod, "NodeExpandSecretRef", ref); err != nil {
			return err
		}
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	if _, err = n.node.NodeExpandVolume(ctx, req); err != nil {
		return expandError(err)
	}
	return nil
}

// expandError converts a driver's error to a storage.ExpandError, in the same way as a kubelet.
func expandError(err error) error {
	e := &storage.ExpandError{Err: err}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		// the expansion may still be running
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		e.Final, e.Infeasible = true, true
	case codes.FailedPrecondition:
		e.Final, e.InUse = true, true
	default:
		e.Final = true
	}
	return e
}
