package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// maxCondition is the maximum size, in bytes, of a driver's message about an abnormal volume.
const maxCondition = 1024

var (
	_ storage.Attacher = (*Drivers)(nil)
	_ storage.Labeler  = (*Drivers)(nil)
	_ storage.Expander = (*Drivers)(nil)
	_ storage.Meter    = (*Drivers)(nil)
	_ storage.Adopter  = (*Drivers)(nil)
)

// Usage returns the driver's usage figures and health of a volume. Unknown figures are -1.
func (d *Drivers) Usage(ctx context.Context, v storage.Volume, path string) (storage.Usage, error) {
	out := storage.Usage{Capacity: -1, Used: -1, Available: -1, Inodes: -1, InodesUsed: -1, InodeFree: -1}
	if err := checkSource(v); err != nil {
		return out, err
	}
	n, err := d.findDriver(v.Source.CSI.Driver, "")
	if err != nil {
		return out, err
	}
	if !n.capabilities[spec.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return out, fmt.Errorf("driver %s does not support volume stats: %w", v.Source.CSI.Driver, errors.ErrUnsupported)
	}
	uid := d.podUID(path)
	if v.Block {
		path = d.publishPath(v, uid)
	}
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	got, err := n.node.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{VolumeId: volumeID(v, uid), VolumePath: path})
	if err != nil {
		return out, err
	}
	for _, u := range got.GetUsage() {
		switch u.GetUnit() {
		case spec.VolumeUsage_BYTES:
			out.Capacity, out.Used, out.Available = u.GetTotal(), u.GetUsed(), u.GetAvailable()
		case spec.VolumeUsage_INODES:
			out.Inodes, out.InodesUsed, out.InodeFree = u.GetTotal(), u.GetUsed(), u.GetAvailable()
		}
	}
	c := got.GetVolumeCondition()
	if n.capabilities[spec.NodeServiceCapability_RPC_VOLUME_CONDITION] && c.GetAbnormal() {
		m := strings.ToValidUTF8(c.GetMessage(), "?")
		out.Abnormal = cmp.Or(m[:min(len(m), maxCondition)], "the driver gives no reason")
	}
	return out, nil
}

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
