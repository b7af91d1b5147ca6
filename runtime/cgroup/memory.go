package cgroup

import (
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// Files of cgroup v2 for memory that is never reclaimed, and for memory that is reclaimed only if
// there is no other.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// Memory configures the protection of the memory of pods.
type Memory struct {
	QoS    bool // whether MemoryQoS (KEP-2570) is enabled; needs cgroup v2
	Tiered bool // whether requests set memory.min of Guaranteed and memory.low of Burstable pods
	// Percent is the percentage of the memory requests of a QoS class that lower classes cannot
	// use. Zero disables this.
	Percent int64
	// Active returns the pods that may be running. It must be set if Tiered or Percent is set.
	Active func() []*v1.Pod
}

// protectPod sets memory.min or memory.low of a pod's cgroup to its memory request.
func (k Memory) protectPod(pod *v1.Pod, r *cgroups.Resources) {
	if !k.QoS || !k.Tiered {
		return
	}
	requests := demand.Requests(pod)
	if n := requests.Memory().Value(); n > 0 {
		key := memoryLow
		if demand.Class(pod) == v1.PodQOSGuaranteed {
			key = memoryMin
		}
		r.Unified = map[string]string{key: strconv.FormatInt(n, 10)}
	}
}

// memoryRequests contains the sums of the memory requests of each QoS class.
type memoryRequests struct{ guaranteed, burstable int64 }

func (k Memory) requested() (out memoryRequests) {
	for _, pod := range k.Active() {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		requests := demand.Requests(pod)
		n := requests.Memory().Value()
		switch demand.Class(pod) {
		case v1.PodQOSGuaranteed:
			out.guaranteed += n
		case v1.PodQOSBurstable:
			out.burstable += n
		}
	}
	return out
}

// classes returns the memory limits and protections of the QoS classes. all is the memory limit of
// kubepods.
func (k Memory) classes(all int64) map[v1.PodQOSClass]*cgroups.Resources {
	out := map[v1.PodQOSClass]*cgroups.Resources{}
	class := func(c v1.PodQOSClass) *cgroups.Resources {
		if out[c] == nil {
			out[c] = &cgroups.Resources{SkipDevices: true}
		}
		return out[c]
	}
	var n memoryRequests
	if k.Active != nil && (k.Percent > 0 || k.QoS && k.Tiered) {
		n = k.requested()
	}
	if k.Percent > 0 && all > 0 {
		burstable := all - n.guaranteed*k.Percent/100
		effort := burstable - n.burstable*k.Percent/100
		class(v1.PodQOSBurstable).Memory, class(v1.PodQOSBestEffort).Memory = max(burstable, 1), max(effort, 1)
	}
	if k.QoS { // write zero values, too, to revert an earlier configuration
		if !k.Tiered {
			n = memoryRequests{}
		}
		class(v1.PodQOSGuaranteed).Unified = map[string]string{memoryMin: strconv.FormatInt(n.guaranteed+n.burstable, 10)}
		class(v1.PodQOSBurstable).Unified = map[string]string{memoryLow: strconv.FormatInt(n.burstable, 10)}
	}
	return out
}

// updateClasses sets the memory limits and protections of the QoS classes, if configured. If a
// class uses more memory than its new limit, the usage becomes the limit. The caller holds mu.
func (p *Pods) updateClasses() {
	if p.c.Memory.Percent == 0 && !p.c.Memory.QoS {
		return
	}
	for c, r := range p.c.Memory.classes(p.c.Kubepods.Memory) {
		n := qosName(p.root, c)
		err := p.set(n, r)
		if err != nil && r.Memory > 0 {
			if used := p.used(c); used > r.Memory {
				r.Memory = used
				err = p.set(n, r)
			}
		}
		if err != nil {
			p.c.Log.Warn("the memory protection of a QoS class could not be set", "cgroup", n.cgroupfs(), "error", err)
		}
	}
}

// used returns the memory usage of a QoS class, rounded up to a whole page.
func (p *Pods) used(c v1.PodQOSClass) int64 {
	var err error
	file := "memory.usage_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.current"
	}
	page := int64(4096)
	return (parseLimit(&err, readLine(&err, p.classDir(c, "memory"), file))/page + 1) * page
}
