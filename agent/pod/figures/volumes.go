package figures

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// ImageVolumes counts image volumes of containers (KEP-4639). It also reports which features are enabled.
type ImageVolumes struct {
	requested, mounted, failed prometheus.Counter
	features                   *prometheus.GaugeVec
}

func newImageVolumes() *ImageVolumes {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &ImageVolumes{
		requested: counter("kubelet_image_volume_requested_total", "number of image volumes that starting containers requested"),
		mounted:   counter("kubelet_image_volume_mounted_succeed_total", "number of image volumes that were mounted"),
		failed:    counter("kubelet_image_volume_mounted_errors_total", "number of image volumes of containers that could not be created"),
		features: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_feature_enabled",
			Help: "1 if the feature is enabled, otherwise 0"}, []string{"name", "stage"}),
	}
}

func (i *ImageVolumes) collectors() []prometheus.Collector {
	return []prometheus.Collector{i.requested, i.mounted, i.failed, i.features}
}

// Feature sets whether a feature is enabled. The stage of the feature is ALPHA, BETA or empty.
func (i *ImageVolumes) Feature(name, stage string, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	i.features.WithLabelValues(name, stage).Set(v)
}

// countVolumes counts the image volumes of a container after an attempt to start the container. The parameter err is the
// result of the attempt.
func (i *ImageVolumes) countVolumes(pod *v1.Pod, name string, err error) {
	if pod == nil {
		return
	}
	_, c := podspec.Find(&pod.Spec, name)
	if c == nil {
		return
	}
	n := 0.0
	for _, m := range c.VolumeMounts {
		if slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name && v.Image != nil }) {
			n++
		}
	}
	if n == 0 {
		return
	}
	i.requested.Add(n)
	switch {
	case err == nil || problemReason(err) == plan.RunContainerError:
		i.mounted.Add(n)
	case problemReason(err) == plan.CreateContainerError || problemReason(err) == plan.CreateContainerConfigError:
		i.failed.Add(n)
	}
}
