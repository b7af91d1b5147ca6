package cri

import (
	"context"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxPart is the maximum size of a message of a streamed list, in bytes. A larger item is sent in a
// message of its own.
const maxPart = 1 << 20

// streamList implements the streaming variant of a list call with the unary variant. It sends the
// list in messages below gRPC's size limit, and no message for an empty list.
// https://kep.k8s.io/5825
func streamList[T proto.Message, R, P any](
	to grpc.ServerStreamingServer[P], list func(context.Context, R) ([]T, error), req R, part func([]T) *P,
) error {
	all, err := list(ByTool(to.Context()), req)
	if err != nil {
		return errgrpc.ToGRPC(err)
	}
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) {
			if size += proto.Size(all[n]); n > 0 && size > maxPart {
				break
			}
			n++
		}
		if err := to.Send(part(all[:n])); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// StreamPodSandboxes streams the result of ListPodSandbox.
func (s runtimeServer) StreamPodSandboxes(
	req *api.StreamPodSandboxesRequest, to grpc.ServerStreamingServer[api.StreamPodSandboxesResponse],
) error {
	return streamList(to, func(ctx context.Context, r *api.ListPodSandboxRequest) ([]*api.PodSandbox, error) {
		l, err := s.ListPodSandbox(ctx, r)
		return l.GetItems(), err
	}, &api.ListPodSandboxRequest{Filter: req.GetFilter()}, func(p []*api.PodSandbox) *api.StreamPodSandboxesResponse {
		return &api.StreamPodSandboxesResponse{PodSandboxes: p}
	})
}

// StreamContainers streams the result of ListContainers.
func (s runtimeServer) StreamContainers(
	req *api.StreamContainersRequest, to grpc.ServerStreamingServer[api.StreamContainersResponse],
) error {
	return streamList(to, func(ctx context.Context, r *api.ListContainersRequest) ([]*api.Container, error) {
		l, err := s.ListContainers(ctx, r)
		return l.GetContainers(), err
	}, &api.ListContainersRequest{Filter: req.GetFilter()}, func(p []*api.Container) *api.StreamContainersResponse {
		return &api.StreamContainersResponse{Containers: p}
	})
}

// StreamContainerStats streams the result of ListContainerStats.
func (s runtimeServer) StreamContainerStats(
	req *api.StreamContainerStatsRequest, to grpc.ServerStreamingServer[api.StreamContainerStatsResponse],
) error {
	return streamList(to, func(ctx context.Context, r *api.ListContainerStatsRequest) ([]*api.ContainerStats, error) {
		l, err := s.ListContainerStats(ctx, r)
		return l.GetStats(), err
	}, &api.ListContainerStatsRequest{Filter: req.GetFilter()}, func(p []*api.ContainerStats) *api.StreamContainerStatsResponse {
		return &api.StreamContainerStatsResponse{ContainerStats: p}
	})
}

// StreamPodSandboxStats streams the result of ListPodSandboxStats.
func (s runtimeServer) StreamPodSandboxStats(
	req *api.StreamPodSandboxStatsRequest, to grpc.ServerStreamingServer[api.StreamPodSandboxStatsResponse],
) error {
	return streamList(to, func(ctx context.Context, r *api.ListPodSandboxStatsRequest) ([]*api.PodSandboxStats, error) {
		l, err := s.ListPodSandboxStats(ctx, r)
		return l.GetStats(), err
	}, &api.ListPodSandboxStatsRequest{Filter: req.GetFilter()}, func(p []*api.PodSandboxStats) *api.StreamPodSandboxStatsResponse {
		return &api.StreamPodSandboxStatsResponse{PodSandboxStats: p}
	})
}

// StreamPodSandboxMetrics streams the result of ListPodSandboxMetrics.
func (s runtimeServer) StreamPodSandboxMetrics(
	_ *api.StreamPodSandboxMetricsRequest, to grpc.ServerStreamingServer[api.StreamPodSandboxMetricsResponse],
) error {
	return streamList(to, func(ctx context.Context, r *api.ListPodSandboxMetricsRequest) ([]*api.PodSandboxMetrics, error) {
		l, err := s.ListPodSandboxMetrics(ctx, r)
		return l.GetPodMetrics(), err
	}, &api.ListPodSandboxMetricsRequest{}, func(p []*api.PodSandboxMetrics) *api.StreamPodSandboxMetricsResponse {
		return &api.StreamPodSandboxMetricsResponse{PodSandboxMetrics: p}
	})
}

// StreamImages streams the result of ListImages.
func (s imageServer) StreamImages(req *api.StreamImagesRequest, to grpc.ServerStreamingServer[api.StreamImagesResponse]) error {
	return streamList(to, func(ctx context.Context, r *api.ListImagesRequest) ([]*api.Image, error) {
		l, err := s.ListImages(ctx, r)
		return l.GetImages(), err
	}, &api.ListImagesRequest{Filter: req.GetFilter()}, func(p []*api.Image) *api.StreamImagesResponse {
		return &api.StreamImagesResponse{Images: p}
	})
}
