package demand_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// TestMemoryHigh checks the usage at which the kernel throttles a cgroup (KEP-2570).
func TestMemoryHigh(t *testing.T) {
	for _, tt := range []struct {
		request, limit int64
		factor         float64
		want           int64
	}{
		{100 << 20, 200 << 20, 0.9, 190 << 20},
		{0, 100 << 20, 0.5, 50 << 20},
		{0, 10_000, 0.9, 8192},
		{100 << 20, 200 << 20, 1, 200 << 20},
		{100 << 20, 200 << 20, 0, 0},
		{100 << 20, 100 << 20, 0.9, 0},
		{200 << 20, 100 << 20, 0.9, 0},
		{100 << 20, 0, 0.9, 0},
		{4096, 4097, 0.5, 0}, // less than a page above the request
	} {
		if got := demand.MemoryHigh(tt.request, tt.limit, tt.factor); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// TestPodMemoryHigh checks that the cgroup of a pod is throttled if spec.resources is set.
func TestPodMemoryHigh(t *testing.T) {
	limited := v1.Container{Resources: v1.ResourceRequirements{Requests: list("memory", "50Mi"), Limits: list("memory", "100Mi")}}
	free := v1.Container{}
	for name, tt := range map[string]struct {
		containers []v1.Container
		of         *v1.ResourceRequirements
		overhead   v1.ResourceList
		want       int64
		asPod      bool // whether the first container has the limit of the pod
	}{
		"containers only":     {[]v1.Container{limited}, nil, nil, 0, false},
		"empty":               {[]v1.Container{limited}, &v1.ResourceRequirements{}, nil, 0, false},
		"limit of the pod":    {[]v1.Container{free, limited}, &v1.ResourceRequirements{Requests: list("memory", "100Mi"), Limits: list("memory", "200Mi")}, nil, 150 << 20, true},
		"a container's limit": {[]v1.Container{limited, free}, &v1.ResourceRequirements{Requests: list("memory", "100Mi"), Limits: list("memory", "200Mi")}, nil, 150 << 20, false},
		"limits of all":       {[]v1.Container{limited, limited}, &v1.ResourceRequirements{Requests: list("cpu", "1")}, nil, 150 << 20, false},
		"one is free":         {[]v1.Container{free, limited}, &v1.ResourceRequirements{Requests: list("memory", "100Mi")}, nil, 0, false},
		"request is limit":    {[]v1.Container{free}, &v1.ResourceRequirements{Requests: list("memory", "100Mi"), Limits: list("memory", "100Mi")}, nil, 0, true},
		"with overhead":       {[]v1.Container{free}, &v1.ResourceRequirements{Requests: list("memory", "100Mi"), Limits: list("memory", "200Mi")}, list("memory", "10Mi"), 160 << 20, true},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: tt.containers, Resources: tt.of, Overhead: tt.overhead}}
		if got := demand.PodMemoryHigh(p, 0.5); got != tt.want {
			t.Errorf("%s: %d, not %d", name, got, tt.want)
		}
		if got := demand.PodMemoryHigh(p, 0); got != 0 {
			t.Errorf("%s: %d without a factor", name, got)
		}
		if got := demand.ThrottledAsPod(p, &p.Spec.Containers[0]); got != tt.asPod {
			t.Errorf("%s: throttled as a pod: %t", name, got)
		}
	}
}
