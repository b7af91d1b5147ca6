package podvolumes

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A PluginReporter is a Kind whose volumes have drivers, or are not below the pod's directory.
type PluginReporter interface {
	// PluginState returns the name of the volume's plugin and whether the volume is mounted. The name is
	// empty if the plugin is not known yet, for example because the claim is not bound. PluginState never
	// blocks.
	PluginState(pod *v1.Pod, vol *v1.Volume) (plugin string, mounted bool)
}

// totalVolumes is the kubelet's metric volume_manager_total_volumes: for each plugin, the number of volumes
// that pods require and the number of volumes that are set up. A volume counts once for each pod that uses
// it.
type totalVolumes struct {
	v    *Volumes
	pods func() []*v1.Pod
}

var totalVolumesDesc = prometheus.NewDesc("volume_manager_total_volumes",
	"number of volumes that pods require (desired_state_of_world) and that are set up (actual_state_of_world)",
	[]string{"plugin_name", "state"}, nil)

// Collectors returns the metrics of volumes. The metrics are computed from the pods that the given function returns,
// with their phases.
func (v *Volumes) Collectors(pods func() []*v1.Pod) []prometheus.Collector {
	return []prometheus.Collector{totalVolumes{v, pods}}
}

// Describe implements prometheus.Collector.
func (totalVolumes) Describe(out chan<- *prometheus.Desc) { out <- totalVolumesDesc }

// Collect implements prometheus.Collector.
func (t totalVolumes) Collect(out chan<- prometheus.Metric) {
	desired, actual := map[string]float64{}, map[string]float64{}
	for _, pod := range t.pods() {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if checkUID(pod.UID) != nil || !usesVolume(pod, vol.Name) {
				continue
			}
			plugin, mounted := t.v.volumeState(pod, vol)
			if plugin == "" {
				continue
			}
			if !ended {
				desired[plugin]++
			}
			if mounted {
				actual[plugin]++
			}
		}
	}
	for state, counts := range map[string]map[string]float64{"desired_state_of_world": desired, "actual_state_of_world": actual} {
		for plugin, n := range counts {
			out <- prometheus.MustNewConstMetric(totalVolumesDesc, prometheus.GaugeValue, n, plugin, state)
		}
	}
}

// usesVolume reports whether a container of the pod uses a volume. A kubelet does not set up other volumes.
func usesVolume(pod *v1.Pod, volume string) bool {
	for _, c := range podspec.Containers(&pod.Spec) {
		if slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) ||
			slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume }) {
			return true
		}
	}
	return false
}

// volumeState returns the name of a volume's plugin and whether the volume is set up. A volume of a kind without a directory,
// such as hostPath, counts as set up when the pod's directory for volumes exists.
func (v *Volumes) volumeState(pod *v1.Pod, vol *v1.Volume) (plugin string, mounted bool) {
	k := v.kindOf(vol)
	switch k := k.(type) {
	case nil:
		return "", false
	case PluginReporter:
		return k.PluginState(pod, vol)
	case *content:
		return k.Plugin(), hasFiles(v.volumeDir(pod, vol, k))
	case hostPath, imageVolume:
		fi, err := os.Lstat(filepath.Join(v.podDir(pod.UID), "volumes"))
		return k.Plugin(), err == nil && fi.IsDir()
	}
	fi, err := os.Lstat(v.volumeDir(pod, vol, k))
	return k.Plugin(), err == nil && fi.Mode().Type() == fs.ModeDir
}
