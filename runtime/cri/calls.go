package cri

import (
	"context"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The methods of Runtime and Images call the method of the same name of the gRPC client.

// Version implements Runtime.
func (c *Client) Version(ctx context.Context, r *api.VersionRequest) (*api.VersionResponse, error) {
	return c.runtime.Version(ctx, r)
}

// Status implements Runtime.
func (c *Client) Status(ctx context.Context, r *api.StatusRequest) (*api.StatusResponse, error) {
	return c.runtime.Status(ctx, r)
}

// RuntimeConfig implements Runtime.
func (c *Client) RuntimeConfig(ctx context.Context, r *api.RuntimeConfigRequest) (*api.RuntimeConfigResponse, error) {
	return c.runtime.RuntimeConfig(ctx, r)
}

// UpdateRuntimeConfig implements Runtime.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, r *api.UpdateRuntimeConfigRequest) (*api.UpdateRuntimeConfigResponse, error) {
	return c.runtime.UpdateRuntimeConfig(ctx, r)
}

// RunPodSandbox implements Runtime.
func (c *Client) RunPodSandbox(ctx context.Context, r *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return c.runtime.RunPodSandbox(ctx, r)
}

// StopPodSandbox implements Runtime.
func (c *Client) StopPodSandbox(ctx context.Context, r *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return c.runtime.StopPodSandbox(ctx, r)
}

// RemovePodSandbox implements Runtime.
func (c *Client) RemovePodSandbox(ctx context.Context, r *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	return c.runtime.RemovePodSandbox(ctx, r)
}

// PodSandboxStatus implements Runtime.
func (c *Client) PodSandboxStatus(ctx context.Context, r *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	return c.runtime.PodSandboxStatus(ctx, r)
}

// ListPodSandbox implements Runtime.
func (c *Client) ListPodSandbox(ctx context.Context, r *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return c.runtime.ListPodSandbox(ctx, r)
}

// UpdatePodSandboxResources implements Runtime.
func (c *Client) UpdatePodSandboxResources(
	ctx context.Context, r *api.UpdatePodSandboxResourcesRequest,
) (*api.UpdatePodSandboxResourcesResponse, error) {
	return c.runtime.UpdatePodSandboxResources(ctx, r)
}

// CreateContainer implements Runtime.
func (c *Client) CreateContainer(ctx context.Context, r *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	return c.runtime.CreateContainer(ctx, r)
}

// StartContainer implements Runtime.
func (c *Client) StartContainer(ctx context.Context, r *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	return c.runtime.StartContainer(ctx, r)
}

// StopContainer implements Runtime.
func (c *Client) StopContainer(ctx context.Context, r *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	return c.runtime.StopContainer(ctx, r)
}

// RemoveContainer implements Runtime.
func (c *Client) RemoveContainer(ctx context.Context, r *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	return c.runtime.RemoveContainer(ctx, r)
}

// ListContainers implements Runtime.
func (c *Client) ListContainers(ctx context.Context, r *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return c.runtime.ListContainers(ctx, r)
}

// ContainerStatus implements Runtime.
func (c *Client) ContainerStatus(ctx context.Context, r *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return c.runtime.ContainerStatus(ctx, r)
}

// UpdateContainerResources implements Runtime.
func (c *Client) UpdateContainerResources(
	ctx context.Context, r *api.UpdateContainerResourcesRequest,
) (*api.UpdateContainerResourcesResponse, error) {
	return c.runtime.UpdateContainerResources(ctx, r)
}

// ReopenContainerLog implements Runtime.
func (c *Client) ReopenContainerLog(ctx context.Context, r *api.ReopenContainerLogRequest) (*api.ReopenContainerLogResponse, error) {
	return c.runtime.ReopenContainerLog(ctx, r)
}

// CheckpointContainer implements Runtime.
func (c *Client) CheckpointContainer(ctx context.Context, r *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error) {
	return c.runtime.CheckpointContainer(ctx, r)
}

// ExecSync implements Runtime.
func (c *Client) ExecSync(ctx context.Context, r *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	return c.runtime.ExecSync(ctx, r)
}

// Exec implements Runtime.
func (c *Client) Exec(ctx context.Context, r *api.ExecRequest) (*api.ExecResponse, error) {
	return c.runtime.Exec(ctx, r)
}

// Attach implements Runtime.
func (c *Client) Attach(ctx context.Context, r *api.AttachRequest) (*api.AttachResponse, error) {
	return c.runtime.Attach(ctx, r)
}

// PortForward implements Runtime.
func (c *Client) PortForward(ctx context.Context, r *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	return c.runtime.PortForward(ctx, r)
}

// ContainerStats implements Runtime.
func (c *Client) ContainerStats(ctx context.Context, r *api.ContainerStatsRequest) (*api.ContainerStatsResponse, error) {
	return c.runtime.ContainerStats(ctx, r)
}

// ListContainerStats implements Runtime.
func (c *Client) ListContainerStats(ctx context.Context, r *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error) {
	return c.runtime.ListContainerStats(ctx, r)
}

// PodSandboxStats implements Runtime.
func (c *Client) PodSandboxStats(ctx context.Context, r *api.PodSandboxStatsRequest) (*api.PodSandboxStatsResponse, error) {
	return c.runtime.PodSandboxStats(ctx, r)
}

// ListPodSandboxStats implements Runtime.
func (c *Client) ListPodSandboxStats(ctx context.Context, r *api.ListPodSandboxStatsRequest) (*api.ListPodSandboxStatsResponse, error) {
	return c.runtime.ListPodSandboxStats(ctx, r)
}

// ListMetricDescriptors implements Runtime.
func (c *Client) ListMetricDescriptors(
	ctx context.Context, r *api.ListMetricDescriptorsRequest,
) (*api.ListMetricDescriptorsResponse, error) {
	return c.runtime.ListMetricDescriptors(ctx, r)
}

// ListPodSandboxMetrics implements Runtime.
func (c *Client) ListPodSandboxMetrics(
	ctx context.Context, r *api.ListPodSandboxMetricsRequest,
) (*api.ListPodSandboxMetricsResponse, error) {
	return c.runtime.ListPodSandboxMetrics(ctx, r)
}

// ListImages implements Images.
func (c *Client) ListImages(ctx context.Context, r *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	return c.images.ListImages(ctx, r)
}

// ImageStatus implements Images.
func (c *Client) ImageStatus(ctx context.Context, r *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	return c.images.ImageStatus(ctx, r)
}

// PullImage implements Images.
func (c *Client) PullImage(ctx context.Context, r *api.PullImageRequest) (*api.PullImageResponse, error) {
	return c.images.PullImage(ctx, r)
}

// RemoveImage implements Images.
func (c *Client) RemoveImage(ctx context.Context, r *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	return c.images.RemoveImage(ctx, r)
}

// ImageFsInfo implements Images.
func (c *Client) ImageFsInfo(ctx context.Context, r *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error) {
	return c.images.ImageFsInfo(ctx, r)
}
