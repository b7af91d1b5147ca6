package figures

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/engine/operations"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/runtime/cri"
)

// slowImage is a fake image service with pulls of the given duration.
type slowImage struct {
	cri.Images
	took time.Duration
}

func (s slowImage) PullImage(context.Context, *api.PullImageRequest) (*api.PullImageResponse, error) {
	time.Sleep(s.took) // in the bubble's time
	return &api.PullImageResponse{}, nil
}

func (slowImage) ImageStatus(context.Context, *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	return &api.ImageStatusResponse{}, nil
}

// TestEvictionsFromTheStart checks that the metric kubelet_evictions exists before the first eviction.
func TestEvictionsFromTheStart(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(newEvictions().collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_evictions" && len(f.Metric) == len(evictionSignals) {
			return
		}
	}
	t.Errorf("kubelet_evictions has no series before the first eviction: %v", families)
}

func TestPodStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operations.New()
		f := New(o, false, time.Now())
		pod := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "i", Image: "init:1"}}, Containers: []v1.Container{{Name: "a", Image: "app"}, {Name: "b", Image: "app"}},
		}}
		pod.CreationTimestamp = metav1.Now()
		time.Sleep(time.Second)
		in := plan.Input{Want: pod, Started: time.Now()}
		pull := func(image string, d time.Duration) {
			if _, err := (operations.Pulls{Images: slowImage{took: d}, Operations: o}).PullImage(t.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: image}}); err != nil {
				t.Fatal(err)
			}
		}
		pull("init:1", 2*time.Second)
		pull("other:1", 4*time.Second) // an image of another pod
		pull("app:latest", 8*time.Second)
		began := metav1.Now()
		time.Sleep(16 * time.Second)
		initialized := []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: began, FinishedAt: metav1.Now()}}}}
		time.Sleep(32 * time.Second)
		runs := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}
		ran := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}} // this container started before the agent
		states := []*v1.PodStatus{
			{Phase: v1.PodPending},
			{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{runs, ran}},
			{Phase: v1.PodPending},
			{Phase: v1.PodRunning, InitContainerStatuses: initialized, ContainerStatuses: []v1.ContainerStatus{runs, {}}},
			{Phase: v1.PodRunning, InitContainerStatuses: initialized, ContainerStatuses: []v1.ContainerStatus{runs, runs}},
			{Phase: v1.PodRunning, InitContainerStatuses: initialized, ContainerStatuses: []v1.ContainerStatus{runs, {RestartCount: 1}}},
			{Phase: v1.PodRunning, InitContainerStatuses: initialized, ContainerStatuses: []v1.ContainerStatus{runs, {RestartCount: 1, State: runs.State}}},
		}
		for i := range states[1:] {
			f.RecordStatus(in, states[i], states[i+1])
		}
		for what, x := range map[string]struct {
			prometheus.Histogram
			want float64
		}{"since seen": {f.startSinceSeen, 62}, "since created": {f.startSinceCreation, 63}, "of its own": {f.sli, 33}} {
			var m model.Metric
			if err := x.Write(&m); err != nil {
				t.Fatal(err)
			}
			if h := m.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != x.want {
				t.Errorf("%s: %d starts of %v s, want one of %v", what, h.GetSampleCount(), h.GetSampleSum(), x.want)
			}
		}
	})
}

// TestSandboxes checks that sandboxes with a user namespace are counted twice: in the metric of all sandboxes and in their own metric.
func TestSandboxes(t *testing.T) {
	f := New(operations.New(), false, time.Now())
	f.countSandbox(&v1.Pod{}, nil)
	f.countSandbox(&v1.Pod{Spec: v1.PodSpec{HostUsers: new(bool)}}, nil)
	f.countSandbox(&v1.Pod{Spec: v1.PodSpec{HostUsers: new(bool)}}, errors.New("refused"))
	for name, x := range map[string]struct {
		prometheus.Counter
		want float64
	}{"all": {f.pods, 3}, "all that failed": {f.podsFailed, 1}, "mapped": {f.userNamespaces, 2}, "mapped that failed": {f.userNamespaceErrors, 1}} {
		var m model.Metric
		if err := x.Write(&m); err != nil || m.GetCounter().GetValue() != x.want {
			t.Errorf("%s: %v, not %v: %v", name, m.GetCounter().GetValue(), x.want, err)
		}
	}
}

// noPods implements Pods and Desired for a node without pods.
type noPods struct{}

func (noPods) Resizing() (map[[2]string]int, int) { return nil, 0 }
func (noPods) Working() map[[3]string]int         { return nil }
func (noPods) Restarted() (int, int)              { return 0, 0 }

// TestWatches checks that each measurement appears in the metric with its name.
func TestWatches(t *testing.T) {
	f := New(operations.New(), true, time.Now())
	f.ObserveRelist(time.Second, time.Time{})
	f.ObserveRelist(time.Second, time.Now().Add(-time.Minute))
	f.Cgroup("create", time.Millisecond)
	f.RequestObserver(func() string { return "api:6443" })("GET", time.Second)
	registry := prometheus.NewRegistry()
	for _, c := range f.Collectors(noPods{}, noPods{}, time.Now) {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]uint64{}
	for _, x := range families {
		count[x.GetName()] = x.Metric[0].GetHistogram().GetSampleCount()
		if x.GetName() == "kubelet_cgroup_version" || x.GetName() == "kubelet_pleg_last_seen_seconds" {
			count[x.GetName()] = uint64(x.Metric[0].GetGauge().GetValue())
		}
	}
	if seen := count["kubelet_pleg_last_seen_seconds"]; seen == 0 || seen > uint64(time.Now().Unix()) {
		t.Errorf("last seen at %d", seen)
	}
	for name, want := range map[string]uint64{"kubelet_pleg_relist_duration_seconds": 2, "kubelet_pleg_relist_interval_seconds": 1, "kubelet_cgroup_manager_duration_seconds": 1,
		"rest_client_request_duration_seconds": 1, "kubelet_cgroup_version": 2} {
		if count[name] != want {
			t.Errorf("%s: %d, want %d", name, count[name], want)
		}
	}
}
