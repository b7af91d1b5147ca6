package operations

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/ctrd"
	"github.com/islet-edge/islet/runtime/image"
)

// Operations are the metrics of calls to the container runtime, with the kubelet's names.
type Operations struct {
	total, failed *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	pullTime      *prometheus.HistogramVec
	pulls         pulls
	repairs       *prometheus.CounterVec // number of repairs of the pod network
}

// New returns Operations in which all metrics are zero. Repairs of the given kinds of items have a metric from the start: an alert cannot
// see the increase of a counter that first appears after the first repair.
func New(items ...string) *Operations {
	kind := []string{"operation_type"}
	o := &Operations{
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "islet_network_repairs_total",
			Help: "items of the built-in pod network that were repaired after another program removed or changed them"}, []string{"item"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
			Help: "calls to the container runtime"}, kind),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
			Help: "calls to the container runtime that failed"}, kind),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
			Help: "duration of calls to the container runtime", Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, kind),
		pullTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "duration of successful pulls, by the size of the image",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	for _, item := range items {
		o.repairs.WithLabelValues(item)
	}
	return o
}

// Collectors returns all metrics.
func (o *Operations) Collectors() []prometheus.Collector {
	return []prometheus.Collector{o.total, o.failed, o.seconds, o.pullTime, o.repairs}
}

// CountRepair counts a repaired item of the pod network.
func (o *Operations) CountRepair(item string) { o.repairs.WithLabelValues(item).Inc() }

// measureCall calls f, and records the call and its duration as operation op.
func measureCall[Q, R any](ctx context.Context, o *Operations, op string, f func(context.Context, Q) (R, error), q Q) (R, error) {
	begin := time.Now()
	r, err := f(ctx, q)
	o.seconds.WithLabelValues(op).Observe(time.Since(begin).Seconds())
	o.total.WithLabelValues(op).Inc()
	if err != nil {
		o.failed.WithLabelValues(op).Inc()
	}
	return r, err
}

// Runtime is a ctrd.Runtime that records the same calls as a kubelet.
type Runtime struct {
	*ctrd.Runtime
	*Operations
}

var _ cri.PodWatcher = Runtime{}

// RunPodSandbox records the call.
func (m Runtime) RunPodSandbox(ctx context.Context, q *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return measureCall(ctx, m.Operations, "run_podsandbox", m.Runtime.RunPodSandbox, q)
}

// StopPodSandbox records the call.
func (m Runtime) StopPodSandbox(ctx context.Context, q *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return measureCall(ctx, m.Operations, "stop_podsandbox", m.Runtime.StopPodSandbox, q)
}

// RemovePodSandbox records the call.
func (m Runtime) RemovePodSandbox(ctx context.Context, q *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	return measureCall(ctx, m.Operations, "remove_podsandbox", m.Runtime.RemovePodSandbox, q)
}

// ListPodSandbox records the call.
func (m Runtime) ListPodSandbox(ctx context.Context, q *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return measureCall(ctx, m.Operations, "list_podsandbox", m.Runtime.ListPodSandbox, q)
}

// CreateContainer records the call.
func (m Runtime) CreateContainer(ctx context.Context, q *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	return measureCall(ctx, m.Operations, "create_container", m.Runtime.CreateContainer, q)
}

// StartContainer records the call.
func (m Runtime) StartContainer(ctx context.Context, q *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	return measureCall(ctx, m.Operations, "start_container", m.Runtime.StartContainer, q)
}

// StopContainer records the call.
func (m Runtime) StopContainer(ctx context.Context, q *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	return measureCall(ctx, m.Operations, "stop_container", m.Runtime.StopContainer, q)
}

// RemoveContainer records the call.
func (m Runtime) RemoveContainer(ctx context.Context, q *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	return measureCall(ctx, m.Operations, "remove_container", m.Runtime.RemoveContainer, q)
}

// ListContainers records the call.
func (m Runtime) ListContainers(ctx context.Context, q *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return measureCall(ctx, m.Operations, "list_containers", m.Runtime.ListContainers, q)
}

// PodSandboxStatus records the call.
func (m Runtime) PodSandboxStatus(ctx context.Context, q *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	return measureCall(ctx, m.Operations, "podsandbox_status", m.Runtime.PodSandboxStatus, q)
}

// ContainerStatus records the call.
func (m Runtime) ContainerStatus(ctx context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return measureCall(ctx, m.Operations, "container_status", m.Runtime.ContainerStatus, q)
}

// ExecSync records the call.
func (m Runtime) ExecSync(ctx context.Context, q *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	return measureCall(ctx, m.Operations, "exec_sync", m.Runtime.ExecSync, q)
}

// operationNames are a kubelet's operation types, by CRI method.
var operationNames = map[string]string{
	"Version": "version", "Status": "status",
	"RunPodSandbox": "run_podsandbox", "StopPodSandbox": "stop_podsandbox", "RemovePodSandbox": "remove_podsandbox",
	"PodSandboxStatus": "podsandbox_status", "ListPodSandbox": "list_podsandbox",
	"CreateContainer": "create_container", "StartContainer": "start_container",
	"StopContainer": "stop_container", "RemoveContainer": "remove_container",
	"ListContainers": "list_containers", "ContainerStatus": "container_status",
	"UpdateContainerResources": "update_container", "ReopenContainerLog": "reopen_container_log",
	"ExecSync": "exec_sync", "Exec": "exec", "Attach": "attach", "PortForward": "port_forward",
	"UpdateRuntimeConfig": "update_runtime_config", "ListContainerStats": "list_container_stats", "ListImages": "list_images",
	"ImageStatus": "image_status", "PullImage": "pull_image", "RemoveImage": "remove_image", "ImageFsInfo": "image_fs_info",
}

// ObserveCall measures a call to a remote runtime. Other methods are ignored.
func (o *Operations) ObserveCall(method string, took time.Duration, err error) {
	op, known := operationNames[method]
	if !known {
		return
	}
	o.seconds.WithLabelValues(op).Observe(took.Seconds())
	o.total.WithLabelValues(op).Inc()
	if err != nil {
		o.failed.WithLabelValues(op).Inc()
	}
}

// Pulls is the image service of a remote runtime. It only records the duration of pulls, because the remote runtime
// reports its calls to ObserveCall itself.
type Pulls struct {
	cri.Images
	*Operations
}

// PullImage records the duration of the pull by the image's size.
func (m Pulls) PullImage(ctx context.Context, q *api.PullImageRequest) (*api.PullImageResponse, error) {
	defer m.pulls.begin(q.GetImage().GetImage())()
	begin := time.Now()
	r, err := m.Images.PullImage(ctx, q)
	m.observePull(ctx, m.Images, q, begin, err)
	return r, err
}

// Images is the image service in this process. It records pulls and removals.
type Images struct {
	*image.Service
	*Operations
}

// PullImage records the call.
func (m Images) PullImage(ctx context.Context, q *api.PullImageRequest) (*api.PullImageResponse, error) {
	defer m.pulls.begin(q.GetImage().GetImage())()
	begin := time.Now()
	r, err := measureCall(ctx, m.Operations, "pull_image", m.Service.PullImage, q)
	m.observePull(ctx, m.Service, q, begin, err)
	return r, err
}

// RemoveImage records the call.
func (m Images) RemoveImage(ctx context.Context, q *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	return measureCall(ctx, m.Operations, "remove_image", m.Service.RemoveImage, q)
}
