package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: cmp.Or(d.most, int64(d.attachLimit)),
		AccessibleTopology: d.segments()}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS, spec.NodeServiceCapability_RPC_VOLUME_CONDITION,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		out.Capabilities = append(out.Capabilities,
			&spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.find(r.GetVolumeId())
	if err == nil && d.attach && !v.attached {
		err = status.Errorf(codes.FailedPrecondition, "volume %q is not attached", r.GetVolumeId())
	}
	return &spec.NodeStageVolumeResponse{}, err
}

func (d *driver) NodeUnstageVolume(context.Context, *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, to := r.GetVolumeId(), r.GetTargetPath()
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" && d.volumes[id] == nil {
		if err := d.create(id, &volume{name: id, size: defaultSize, ephemeral: true}); err != nil {
			return nil, err
		}
	}
	if _, err := d.find(id); err != nil {
		return nil, err
	}
	if mounted(to) {
		return &spec.NodePublishVolumeResponse{}, nil
	}
	from, err := d.path(id)
	if err == nil {
		err = os.MkdirAll(to, 0o750)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return nil, err
	}
	if r.GetReadonly() {
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return &spec.NodePublishVolumeResponse{}, err
}

func mounted(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to := r.GetTargetPath()
	if mounted(to) {
		if err := unix.Unmount(to, 0); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if v := d.volumes[r.GetVolumeId()]; v != nil && v.ephemeral {
		return &spec.NodeUnpublishVolumeResponse{}, d.remove(r.GetVolumeId())
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Clean(r.GetVolumePath())); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the volume is not at its path: %v", err)
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: v.size}, nil
}

func (d *driver) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if !mounted(r.GetVolumePath()) {
		return &spec.NodeGetVolumeStatsResponse{VolumeCondition: &spec.VolumeCondition{Abnormal: true,
			Message: "the volume is not mounted"}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &st); err != nil {
		return nil, err
	}
	size := uint64(st.Bsize) //nolint:unconvert // the type of Bsize depends on the architecture
	bytes := &spec.VolumeUsage{Unit: spec.VolumeUsage_BYTES, Total: int64(st.Blocks * size),
		Used: int64((st.Blocks - st.Bfree) * size), Available: int64(st.Bavail * size)}
	return &spec.NodeGetVolumeStatsResponse{
		Usage: []*spec.VolumeUsage{bytes, {Unit: spec.VolumeUsage_INODES, Total: int64(st.Files),
			Used: int64(st.Files - st.Ffree), Available: int64(st.Ffree)}},
		VolumeCondition: &spec.VolumeCondition{Message: "it is mounted"},
	}, nil
}
