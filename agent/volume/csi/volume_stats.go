package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

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
