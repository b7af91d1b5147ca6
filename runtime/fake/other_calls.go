package fake

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the version of the fake runtime.
func (r *Runtime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return &api.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "0", RuntimeApiVersion: "v1"}, nil
}

// Status reports that the runtime and its network are ready.
func (r *Runtime) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	if err := r.recordCall("Status", ""); err != nil {
		return nil, err
	}
	return &api.StatusResponse{Status: &api.RuntimeStatus{Conditions: []*api.RuntimeCondition{
		{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true},
	}}}, nil
}

// RuntimeConfig returns the cgroup driver cgroupfs.
func (r *Runtime) RuntimeConfig(context.Context, *api.RuntimeConfigRequest) (*api.RuntimeConfigResponse, error) {
	return &api.RuntimeConfigResponse{Linux: &api.LinuxRuntimeConfiguration{CgroupDriver: api.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig does nothing.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *api.UpdateRuntimeConfigRequest) (*api.UpdateRuntimeConfigResponse, error) {
	return &api.UpdateRuntimeConfigResponse{}, nil
}

var errNoProcesses = fmt.Errorf("the fake runtime runs no processes: %w", errdefs.ErrNotImplemented)

// Exec is not implemented.
func (r *Runtime) Exec(context.Context, *api.ExecRequest) (*api.ExecResponse, error) {
	return nil, errNoProcesses
}

// Attach is not implemented.
func (r *Runtime) Attach(context.Context, *api.AttachRequest) (*api.AttachResponse, error) {
	return nil, errNoProcesses
}

// PortForward is not implemented.
func (r *Runtime) PortForward(context.Context, *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	return nil, errNoProcesses
}

// ContainerStats is not implemented.
func (r *Runtime) ContainerStats(context.Context, *api.ContainerStatsRequest) (*api.ContainerStatsResponse, error) {
	return nil, errNoProcesses
}

// ListContainerStats returns an empty list.
func (r *Runtime) ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error) {
	return &api.ListContainerStatsResponse{}, nil
}

// PodSandboxStats is not implemented.
func (r *Runtime) PodSandboxStats(context.Context, *api.PodSandboxStatsRequest) (*api.PodSandboxStatsResponse, error) {
	return nil, errNoProcesses
}

// ListPodSandboxStats returns an empty list.
func (r *Runtime) ListPodSandboxStats(context.Context, *api.ListPodSandboxStatsRequest) (*api.ListPodSandboxStatsResponse, error) {
	return &api.ListPodSandboxStatsResponse{}, nil
}

// UpdatePodSandboxResources stores the resources of a sandbox.
func (r *Runtime) UpdatePodSandboxResources(
	_ context.Context, req *api.UpdatePodSandboxResourcesRequest,
) (*api.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if s.config.Linux == nil {
		s.config.Linux = &api.LinuxPodSandboxConfig{}
	}
	s.config.Linux.Overhead, s.config.Linux.Resources = proto.CloneOf(req.GetOverhead()), proto.CloneOf(req.GetResources())
	return &api.UpdatePodSandboxResourcesResponse{}, nil
}

// CheckpointContainer is not implemented.
func (r *Runtime) CheckpointContainer(_ context.Context, req *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.findContainer(req.GetContainerId()); err != nil {
		return nil, err
	}
	return nil, errNoProcesses
}

// ListMetricDescriptors returns an empty list.
func (r *Runtime) ListMetricDescriptors(context.Context, *api.ListMetricDescriptorsRequest) (*api.ListMetricDescriptorsResponse, error) {
	return &api.ListMetricDescriptorsResponse{}, nil
}

// ListPodSandboxMetrics returns an empty list.
func (r *Runtime) ListPodSandboxMetrics(context.Context, *api.ListPodSandboxMetricsRequest) (*api.ListPodSandboxMetricsResponse, error) {
	return &api.ListPodSandboxMetricsResponse{}, nil
}

// findImage returns the ID of an image. The caller holds the lock.
func (r *Runtime) findImage(ref string) (id string, err error) {
	for have, id := range r.images {
		if have == ref || id == ref {
			return id, nil
		}
	}
	return "", fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
}

// ListImages lists all images.
func (r *Runtime) ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListImagesResponse{}
	for ref, id := range r.images {
		out.Images = append(out.Images, &api.Image{Id: id, RepoTags: []string{ref}, Size: 1})
	}
	return out, nil
}

// ImageStatus returns the status of an image. For an unknown reference, the field Image is nil.
func (r *Runtime) ImageStatus(_ context.Context, req *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	ref := req.GetImage().GetImage()
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := r.findImage(ref)
	if err != nil {
		return &api.ImageStatusResponse{}, nil
	}
	return &api.ImageStatusResponse{Image: &api.Image{Id: id, RepoTags: []string{ref}, Size: 1}}, nil
}

// PullImage adds an image.
func (r *Runtime) PullImage(_ context.Context, req *api.PullImageRequest) (*api.PullImageResponse, error) {
	ref := req.GetImage().GetImage()
	if err := r.recordCall("PullImage", ref); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := r.findImage(ref)
	if err != nil {
		r.serial++
		id = fmt.Sprintf("sha256:%063d1", r.serial)
		r.images[ref] = id
	}
	return &api.PullImageResponse{ImageRef: id}, nil
}

// RemoveImage removes an image.
func (r *Runtime) RemoveImage(_ context.Context, req *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	ref := req.GetImage().GetImage()
	if err := r.recordCall("RemoveImage", ref); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for have, id := range r.images {
		if have == ref || id == ref {
			delete(r.images, have)
		}
	}
	return &api.RemoveImageResponse{}, nil
}

// ImageFsInfo returns the file system of images.
func (r *Runtime) ImageFsInfo(context.Context, *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error) {
	return &api.ImageFsInfoResponse{ImageFilesystems: []*api.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &api.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: &api.UInt64Value{Value: 1},
	}}}, nil
}
