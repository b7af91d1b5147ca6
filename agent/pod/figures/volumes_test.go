package figures

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestImageVolumes checks that each mount of an image volume is counted, together with the result of the container's creation.
func TestImageVolumes(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}, {Name: "scratch"}},
		Containers: []v1.Container{
			{Name: "a", VolumeMounts: []v1.VolumeMount{{Name: "data"}, {Name: "scratch"}, {Name: "data", MountPath: "/again"}}}, {Name: "b", VolumeMounts: []v1.VolumeMount{{Name: "scratch"}}},
		}}}
	i := newImageVolumes()
	for _, err := range []error{nil, &worker.Problem{Reason: plan.CreateContainerError}, &worker.Problem{Reason: plan.ErrImagePull}, &worker.Problem{Reason: plan.RunContainerError}, errors.New("other")} {
		for _, container := range []string{"a", "b", "gone"} {
			i.countVolumes(pod, container, err)
		}
		i.countVolumes(nil, "a", err)
	}
	for what, x := range map[string]struct {
		prometheus.Counter
		want float64
	}{"requested": {i.requested, 10}, "mounted": {i.mounted, 4}, "failed": {i.failed, 2}} {
		var m model.Metric
		if err := x.Write(&m); err != nil || m.GetCounter().GetValue() != x.want {
			t.Errorf("%s: %v %v, want %v", what, m.GetCounter().GetValue(), err, x.want)
		}
	}
}
