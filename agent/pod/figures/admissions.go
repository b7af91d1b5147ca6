package figures

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// Admissions counts admitted, rejected and preempted pods.
type Admissions struct {
	rejected   *prometheus.CounterVec
	admissions *prometheus.CounterVec // admitted pods
	preempted  *prometheus.CounterVec // pods
}

func newAdmissions() *Admissions {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Admissions{
		rejected: counter("kubelet_admission_rejections_total", "number of pods that the node refused, by reason", "reason"),
		admissions: counter("kubelet_pod_level_resources_admission_total",
			"number of admitted pods, by where their resources are specified and by QoS class", "config_mode", "qos_class"),
		preempted: counter("kubelet_preemptions",
			"number of pods that were preempted for a critical pod, by the resource that the critical pod lacked", "preemption_signal"),
	}
}

func (a *Admissions) collectors() []prometheus.Collector {
	return []prometheus.Collector{a.rejected, a.admissions, a.preempted}
}

// Admitted counts an admitted pod.
func (a *Admissions) Admitted(pod *v1.Pod) {
	a.admissions.WithLabelValues(levelOf(pod), strings.ToLower(string(demand.Class(pod)))).Inc()
}

// CountRejection counts a pod that was not admitted, by the reason.
func (a *Admissions) CountRejection(reason string) {
	a.rejected.WithLabelValues(rejectionLabel(reason)).Inc()
}

// CountPreemption counts a pod that was preempted by a critical pod.
func (a *Admissions) CountPreemption(signal string) { a.preempted.WithLabelValues(signal).Inc() }

// levelOf returns the level at which the resources of a pod are specified: the pod, its
// containers, or both. The result is empty if no resources are specified.
func levelOf(pod *v1.Pod) string {
	has := func(list []v1.Container) bool {
		for i := range list {
			if r := &list[i].Resources; len(r.Requests) > 0 || len(r.Limits) > 0 {
				return true
			}
		}
		return false
	}
	whole, containers := demand.AsWhole(pod), has(pod.Spec.Containers) || has(pod.Spec.InitContainers)
	switch {
	case whole && containers:
		return "pod_and_container_level"
	case whole:
		return "pod_level"
	case containers:
		return "container_level"
	}
	return ""
}

// rejectionLabel returns the value of the metric's label for a reason, as in a kubelet. All extended resources share one
// value. All unknown reasons share another value. Otherwise pods could create an unlimited number of metrics.
func rejectionLabel(reason string) string {
	switch reason {
	case "AppArmor", "Evicted", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeShutdown", "OutOfcpu",
		"OutOfephemeral-storage", "OutOfmemory", "OutOfpods", "PodFeatureUnsupported", "PodLevelResourcesNotSupported",
		"PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden",
		"TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason",
		"VolumeAttachmentLimitExceeded", "node(s) had taints that the pod didn't tolerate":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
