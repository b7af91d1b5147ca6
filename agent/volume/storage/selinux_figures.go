package storage

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// labelFigures counts volumes that are mounted with an SELinux label, and pods that wait because of a label.
// The metrics are the same as in a kubelet.
type labelFigures struct {
	volumes, containers, pods, conflicts *prometheus.GaugeVec
}

func newLabelFigures() *labelFigures {
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &labelFigures{
		vec("volume_manager_selinux_volumes_admitted_total",
			"volumes that were mounted with an SELinux label", "volume_plugin", "access_mode"),
		vec("volume_manager_selinux_container_errors_total",
			"attempts to mount a volume for a container without a valid SELinux label", "access_mode"),
		vec("volume_manager_selinux_pod_context_mismatch_errors_total",
			"attempts to mount a volume for containers of a pod with different SELinux labels", "access_mode"),
		vec("volume_manager_selinux_volume_context_mismatch_errors_total",
			"attempts to mount a volume that another pod uses with another SELinux label", "volume_plugin", "access_mode"),
	}
}

func (f *labelFigures) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.volumes, f.containers, f.pods, f.conflicts}
}

// A labelError is an error whose cause is an SELinux label. The metric of the error is increased if the error makes
// a pod wait.
type labelError struct {
	error
	count prometheus.Gauge
}

func (e *labelError) Unwrap() error { return e.error }

// countLabelError counts the error of an attempt to set up a volume if it is a labelError. It returns err.
func countLabelError(err error) error {
	var l *labelError
	if errors.As(err, &l) {
		l.count.Inc()
	}
	return err
}

func (f *labelFigures) containerError(v *Volume, err error) error {
	return &labelError{err, f.containers.WithLabelValues(accessMode(v))}
}

func (f *labelFigures) podError(v *Volume, err error) error {
	return &labelError{err, f.pods.WithLabelValues(accessMode(v))}
}

func (f *labelFigures) volumeError(v *Volume, plugin string, err error) error {
	return &labelError{err, f.conflicts.WithLabelValues(pluginWithDriver(v, plugin), accessMode(v))}
}

// countVolume counts a volume that is mounted with a label.
func (f *labelFigures) countVolume(v *Volume, plugin string) {
	f.volumes.WithLabelValues(pluginWithDriver(v, plugin), accessMode(v)).Inc()
}

func pluginWithDriver(v *Volume, plugin string) string {
	if v.Source.CSI != nil {
		return plugin + "/" + v.Source.CSI.Driver
	}
	return plugin
}

// accessMode returns the short name of the volume's least restrictive access mode.
func accessMode(v *Volume) string {
	for _, m := range []struct {
		mode  v1.PersistentVolumeAccessMode
		short string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(v.AccessModes, m.mode) {
			return m.short
		}
	}
	return ""
}
