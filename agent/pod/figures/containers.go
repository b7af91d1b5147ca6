package figures

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// containers counts starts and ends of containers.
type containers struct{ started, failed, ended *prometheus.CounterVec }

func newContainers() containers {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return containers{
		started: counter("kubelet_started_containers_total", "number of containers that were started", "container_type"),
		failed: counter("kubelet_started_containers_errors_total", "number of containers that could not be started",
			"container_type", "code"),
		ended: counter("kubelet_terminated_containers_total", "number of containers that have ended",
			"container_type", "exit_code", "reason"),
	}
}

func (c containers) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.started, c.failed, c.ended}
}

// countEnds counts the containers that have ended between two statuses of a pod.
func (c containers) countEnds(before, now *v1.PodStatus) {
	count := func(kind string, before, now []v1.ContainerStatus) {
		for i := range now {
			end := now[i].State.Terminated
			was := slices.IndexFunc(before, func(s v1.ContainerStatus) bool { return s.Name == now[i].Name })
			if end == nil || was >= 0 && before[was].State.Terminated != nil {
				continue
			}
			c.ended.WithLabelValues(kind, strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
		}
	}
	count("init_container", before.InitContainerStatuses, now.InitContainerStatuses)
	count("container", before.ContainerStatuses, now.ContainerStatuses)
	count("ephemeral_container", before.EphemeralContainerStatuses, now.EphemeralContainerStatuses)
}
