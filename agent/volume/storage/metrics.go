package storage

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/edge/store"
)

// Seconds contains the histogram buckets for the durations of volume operations, as in a kubelet.
var Seconds = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// newOperationSeconds returns the histogram of the durations of volume operations. The metric has the same name as in a
// kubelet.
func newOperationSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "how long it took to mount and unmount volumes",
		Buckets: Seconds,
	},
		[]string{"volume_plugin", "operation_name", "status", "migrated"})
}

// observeCall calls f and records the duration and the result of the call.
func (k *Mounter) observeCall(operation, plugin string, v Volume, f func() error) error {
	begin := time.Now()
	err := f()
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	if c := v.Source.CSI; c != nil {
		plugin += ":" + c.Driver
	}
	k.operations.WithLabelValues(plugin, operation, status, "false").Observe(time.Since(begin).Seconds())
	return err
}

// PluginState returns the name of the volume's plugin and whether the volume is mounted for the pod. The name
// is empty if the volume cannot be resolved yet. PluginState never blocks.
func (k *Mounter) PluginState(pod *v1.Pod, vol *v1.Volume) (plugin string, mounted bool) {
	v, d, err := k.resolveVolume(pod, vol)
	if err != nil {
		return "", false
	}
	plugin = d.Plugin()
	if c := v.Source.CSI; c != nil {
		plugin += ":" + c.Driver
	}
	key := store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: k.volumePath(pod, v, d)}
	if k.isUp(key) {
		return plugin, true
	}
	k.mu.Lock()
	_, noted := k.rows[key]
	k.mu.Unlock()
	if v.Block { // nothing is mounted: a link leads to the device
		_, err := os.Lstat(key.Path)
		return plugin, noted && err == nil
	}
	return plugin, noted && !k.belowRoot(key.Path) // a path on the host is not mounted
}

// claimMetrics implements the kubelet's metrics about the volumes of claims.
var claimMetrics = []struct {
	desc  *prometheus.Desc
	value func(*stats.VolumeStats) *uint64
}{
	{
		volumeDesc("kubelet_volume_stats_capacity_bytes", "Bytes that the volume has room for"),
		func(s *stats.VolumeStats) *uint64 { return s.CapacityBytes },
	},
	{
		volumeDesc("kubelet_volume_stats_available_bytes", "Bytes that are free in the volume"),
		func(s *stats.VolumeStats) *uint64 { return s.AvailableBytes },
	},
	{
		volumeDesc("kubelet_volume_stats_used_bytes", "Bytes that are used in the volume"),
		func(s *stats.VolumeStats) *uint64 { return s.UsedBytes },
	},
	{
		volumeDesc("kubelet_volume_stats_inodes", "Inodes that the volume has room for"),
		func(s *stats.VolumeStats) *uint64 { return s.Inodes },
	},
	{
		volumeDesc("kubelet_volume_stats_inodes_free", "Inodes that are free in the volume"),
		func(s *stats.VolumeStats) *uint64 { return s.InodesFree },
	},
	{
		volumeDesc("kubelet_volume_stats_inodes_used", "Inodes that are used in the volume"),
		func(s *stats.VolumeStats) *uint64 { return s.InodesUsed },
	},
}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// Collectors returns the metrics of volumes. Each scrape calls Stats to measure the usage.
func (k *Mounter) Collectors(pods func() []*v1.Pod) []prometheus.Collector {
	return append(k.labels.collectors(), k.operations, meter{k, pods})
}

// isIdle reports whether no volume is mounted or being mounted.
func (k *Mounter) isIdle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.rows) == 0
}

type meter struct {
	k    *Mounter
	pods func() []*v1.Pod
}

// Describe implements prometheus.Collector.
func (meter) Describe(out chan<- *prometheus.Desc) {
	for _, f := range claimMetrics {
		out <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (m meter) Collect(out chan<- prometheus.Metric) {
	if m.k.isIdle() {
		return
	}
	pods := m.pods()
	all := m.k.Stats(context.Background(), pods)
	told := map[types.NamespacedName]bool{} // several pods may use the same claim
	for _, p := range pods {
		for _, s := range all[p.UID] {
			if s.PVCRef == nil || told[types.NamespacedName{Namespace: s.PVCRef.Namespace, Name: s.PVCRef.Name}] {
				continue
			}
			told[types.NamespacedName{Namespace: s.PVCRef.Namespace, Name: s.PVCRef.Name}] = true
			for _, f := range claimMetrics {
				if n := f.value(&s); n != nil {
					out <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(*n), s.PVCRef.Namespace, s.PVCRef.Name)
				}
			}
		}
	}
}
