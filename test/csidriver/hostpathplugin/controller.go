package main

import (
	"cmp"
	"context"
	"os"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	defaultSize = 1 << 20
	mostSize    = 1 << 40
)

func (d *driver) ControllerGetCapabilities(context.Context,
	*spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	all := []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, spec.ControllerServiceCapability_RPC_GET_CAPACITY,
		spec.ControllerServiceCapability_RPC_EXPAND_VOLUME, spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.attach {
		all = append(all, spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	out := &spec.ControllerGetCapabilitiesResponse{}
	for _, c := range all {
		rpc := &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: c}}
		out.Capabilities = append(out.Capabilities, &spec.ControllerServiceCapability{Type: rpc})
	}
	return out, nil
}

func (d *driver) CreateVolume(_ context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the volume has no name or no capabilities")
	}
	if r.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "a volume content source is not supported")
	}
	for _, c := range r.GetVolumeCapabilities() {
		if c.GetBlock() != nil {
			return nil, status.Error(codes.InvalidArgument, "block volumes are not supported")
		}
	}
	size := cmp.Or(r.GetCapacityRange().GetRequiredBytes(), defaultSize)
	if most := r.GetCapacityRange().GetLimitBytes(); size > mostSize || most > 0 && size > most {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes are too many", size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := func(id string, v *volume) (*spec.CreateVolumeResponse, error) {
		out := &spec.Volume{VolumeId: id, CapacityBytes: v.size, VolumeContext: r.GetParameters()}
		if t := d.segments(); t != nil {
			out.AccessibleTopology = []*spec.Topology{t}
		}
		return &spec.CreateVolumeResponse{Volume: out}, nil
	}
	for id, v := range d.volumes {
		if v.name != r.GetName() {
			continue
		}
		if v.size < size {
			return nil, status.Errorf(codes.AlreadyExists, "volume %q has %d bytes", v.name, v.size)
		}
		return answer(id, v)
	}
	id, v := d.newID(), &volume{name: r.GetName(), size: size}
	if err := d.create(id, v); err != nil {
		return nil, err
	}
	return answer(id, v)
}

// create creates the directory of a volume. The caller holds mu.
func (d *driver) create(id string, v *volume) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	d.volumes[id] = v
	return nil
}

func (d *driver) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &spec.DeleteVolumeResponse{}, d.remove(r.GetVolumeId())
}

// remove removes a volume's data. The caller holds mu.
func (d *driver) remove(id string) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	delete(d.volumes, id)
	return os.RemoveAll(path)
}

func (d *driver) ControllerPublishVolume(_ context.Context,
	r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	if r.GetNodeId() != d.node {
		return nil, status.Errorf(codes.NotFound, "this is node %q, not %q", d.node, r.GetNodeId())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	attached := 0
	for _, other := range d.volumes {
		if other.attached && other != v {
			attached++
		}
	}
	if d.attachLimit > 0 && attached >= d.attachLimit {
		return nil, status.Errorf(codes.ResourceExhausted, "%d volumes are attached, which is the limit of node %s", attached, d.node)
	}
	v.attached = true
	return &spec.ControllerPublishVolumeResponse{}, nil
}

func (d *driver) ControllerUnpublishVolume(_ context.Context,
	r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[r.GetVolumeId()]; v != nil {
		v.attached = false
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context,
	r *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &spec.ValidateVolumeCapabilitiesResponse{
		Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}

func (d *driver) GetCapacity(context.Context, *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	return &spec.GetCapacityResponse{AvailableCapacity: mostSize}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context,
	r *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	to := r.GetCapacityRange().GetRequiredBytes()
	if to > mostSize {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes are too many", to)
	}
	if to > v.size {
		v.size = to
	}
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: v.size, NodeExpansionRequired: d.expands}, nil
}
