package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/image"
)

// operations counts what the container runtime is asked, under the names that a
// kubelet has for it.
type operations struct {
	total, failed *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	pulls         pulls
}

func newOperations() *operations {
	kind := []string{"operation_type"}
	return &operations{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
			Help: "what the container runtime was asked"}, kind),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
			Help: "what of it failed"}, kind),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
			Help: "how long it took", Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, kind),
	}
}

func (o *operations) collectors() []prometheus.Collector {
	return []prometheus.Collector{o.total, o.failed, o.seconds}
}

// counted does f and counts it.
func counted[Q, R any](ctx context.Context, o *operations, op string, f func(context.Context, Q) (R, error), q Q) (R, error) {
	begin := time.Now()
	r, err := f(ctx, q)
	o.seconds.WithLabelValues(op).Observe(time.Since(begin).Seconds())
	o.total.WithLabelValues(op).Inc()
	if err != nil {
		o.failed.WithLabelValues(op).Inc()
	}
	return r, err
}

// meteredRuntime counts what changes containers or looks at them.
type meteredRuntime struct {
	*ctrd.Runtime
	*operations
}

func (m meteredRuntime) RunPodSandbox(ctx context.Context, q *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return counted(ctx, m.operations, "run_podsandbox", m.Runtime.RunPodSandbox, q)
}

func (m meteredRuntime) StopPodSandbox(ctx context.Context, q *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return counted(ctx, m.operations, "stop_podsandbox", m.Runtime.StopPodSandbox, q)
}

func (m meteredRuntime) RemovePodSandbox(ctx context.Context, q *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	return counted(ctx, m.operations, "remove_podsandbox", m.Runtime.RemovePodSandbox, q)
}

func (m meteredRuntime) ListPodSandbox(ctx context.Context, q *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return counted(ctx, m.operations, "list_podsandbox", m.Runtime.ListPodSandbox, q)
}

func (m meteredRuntime) CreateContainer(ctx context.Context, q *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	return counted(ctx, m.operations, "create_container", m.Runtime.CreateContainer, q)
}

func (m meteredRuntime) StartContainer(ctx context.Context, q *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	return counted(ctx, m.operations, "start_container", m.Runtime.StartContainer, q)
}

func (m meteredRuntime) StopContainer(ctx context.Context, q *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	return counted(ctx, m.operations, "stop_container", m.Runtime.StopContainer, q)
}

func (m meteredRuntime) RemoveContainer(ctx context.Context, q *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	return counted(ctx, m.operations, "remove_container", m.Runtime.RemoveContainer, q)
}

func (m meteredRuntime) ListContainers(ctx context.Context, q *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return counted(ctx, m.operations, "list_containers", m.Runtime.ListContainers, q)
}

func (m meteredRuntime) PodSandboxStatus(ctx context.Context, q *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	return counted(ctx, m.operations, "podsandbox_status", m.Runtime.PodSandboxStatus, q)
}

func (m meteredRuntime) ContainerStatus(ctx context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return counted(ctx, m.operations, "container_status", m.Runtime.ContainerStatus, q)
}

func (m meteredRuntime) ExecSync(ctx context.Context, q *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	return counted(ctx, m.operations, "exec_sync", m.Runtime.ExecSync, q)
}

// meteredImages counts pulls.
type meteredImages struct {
	*image.Service
	*operations
}

func (m meteredImages) PullImage(ctx context.Context, q *api.PullImageRequest) (*api.PullImageResponse, error) {
	defer m.pulls.begin(q.GetImage().GetImage())()
	return counted(ctx, m.operations, "pull_image", m.Service.PullImage, q)
}

func (m meteredImages) RemoveImage(ctx context.Context, q *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	return counted(ctx, m.operations, "remove_image", m.Service.RemoveImage, q)
}
