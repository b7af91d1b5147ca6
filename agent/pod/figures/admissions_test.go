package figures

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// This helper returns the values of the collectors' series. A key consists of the name and the label values.
func values(t *testing.T, c ...prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "kubelet_")
			if len(labels) > 0 {
				name += " " + strings.Join(labels, " ")
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func equal(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, not %v", got, want)
	}
}

// TestAdmissions checks that decisions about pods are counted. The number of label values is limited.
func TestAdmissions(t *testing.T) {
	a := newAdmissions()
	for _, reason := range []string{"OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/x", "SysctlForbidden", "anything", "else", ""} {
		a.CountRejection(reason)
	}
	for i := range 1000 {
		a.CountRejection(fmt.Sprint("OutOf", i))
	}
	some := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}}
	for _, p := range []v1.PodSpec{
		{Containers: []v1.Container{{}}},
		{Containers: []v1.Container{{}}, Resources: &v1.ResourceRequirements{}},
		{Containers: []v1.Container{{}, {Resources: some}}},
		{InitContainers: []v1.Container{{Resources: some}}, Containers: []v1.Container{{}}},
		{Containers: []v1.Container{{}}, Resources: &some},
		{Containers: []v1.Container{{Resources: some}}, Resources: &some},
	} {
		a.Admitted(&v1.Pod{Spec: p})
	}
	a.CountPreemption("memory")
	equal(t, values(t, a.collectors()...), map[string]float64{
		"admission_rejections_total OutOfcpu": 1, "admission_rejections_total OutOfExtendedResources": 1002,
		"admission_rejections_total SysctlForbidden": 1, "admission_rejections_total Other": 3,
		"pod_level_resources_admission_total  besteffort":                       2,
		"pod_level_resources_admission_total container_level burstable":         2,
		"pod_level_resources_admission_total pod_level burstable":               1,
		"pod_level_resources_admission_total pod_and_container_level burstable": 1,
		"preemptions memory": 1,
	})
}

// TestTerminated checks that each exit of a container is counted once.
func TestTerminated(t *testing.T) {
	f := New(nil, true, time.Now())
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(code int32, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	list := func(s ...v1.ContainerState) (out []v1.ContainerStatus) {
		for i := range s {
			out = append(out, v1.ContainerStatus{Name: fmt.Sprint(i), State: s[i]})
		}
		return out
	}
	statuses := []v1.PodStatus{
		{},
		{InitContainerStatuses: list(ended(0, "Completed"))}, // this container exited before the first status
		{InitContainerStatuses: list(ended(0, "Completed")), ContainerStatuses: list(runs, runs)},
		{InitContainerStatuses: list(ended(0, "Completed")), ContainerStatuses: list(ended(137, "OOMKilled"), runs)},
		{InitContainerStatuses: list(ended(0, "Completed")), ContainerStatuses: list(ended(137, "OOMKilled"), runs), EphemeralContainerStatuses: list(runs)},
		{InitContainerStatuses: list(ended(0, "Completed")), ContainerStatuses: list(runs, runs), EphemeralContainerStatuses: list(ended(1, "Error"))},
		{InitContainerStatuses: list(ended(0, "Completed")), ContainerStatuses: list(ended(137, "OOMKilled"), runs), EphemeralContainerStatuses: list(ended(1, "Error"))},
	}
	for i := range len(statuses) - 1 {
		f.RecordStatus(plan.Input{}, &statuses[i], &statuses[i+1])
	}
	equal(t, values(t, f.containers.collectors()...), map[string]float64{
		"terminated_containers_total init_container 0 Completed": 1, "terminated_containers_total container 137 OOMKilled": 2,
		"terminated_containers_total ephemeral_container 1 Error": 1,
	})
}

// TestProtected checks that the metrics of protected memory have no series while the node has no protected memory.
func TestProtected(t *testing.T) {
	w := newWatches()
	equal(t, values(t, w.memoryMin, w.memoryLow), map[string]float64{})
	w.Protected(3, 5)
	w.Protected(0, 7)
	equal(t, values(t, w.memoryMin, w.memoryLow), map[string]float64{"memory_qos_node_memory_min_bytes": 0, "memory_qos_node_memory_low_bytes": 7})
}

// TestRotated checks that the metric about replaced serving certificates has no series before the first replacement.
func TestRotated(t *testing.T) {
	w := newWatches()
	equal(t, values(t, w.rotationAge), map[string]float64{})
	w.Rotated(1)
	w.Rotated(2)
	equal(t, values(t, w.rotationAge), map[string]float64{"certificate_manager_server_rotation_seconds": 2})
}

// TestDeferredResizes checks that a deferred resize is counted with its result when it is no longer deferred.
func TestDeferredResizes(t *testing.T) {
	r := newResizes()
	r.ObserveResolved("accepted", "high", 7)
	r.ObserveResolved("accepted", "high", 9)
	r.ObserveResolved("terminated", "unknown", 9)
	equal(t, values(t, r.deferred), map[string]float64{
		"pod_deferred_resize_duration_seconds high accepted": 2, "pod_deferred_resize_duration_seconds unknown terminated": 1,
	})
}
