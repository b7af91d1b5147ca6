package cgroup

import (
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// The kernel's file for memory that is never reclaimed, and its file for memory that is reclaimed
// last.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// Memory configures the protection of pods' memory.
type Memory struct {
	QoS    bool // whether the feature MemoryQoS is on (KEP-2570) and the host uses cgroup v2
	Tiered bool // whether requests of guaranteed pods set memory.min, and those of burstable pods memory.low
	// Percent is the part of the memory requests of better QoS classes that lower classes cannot
	// use. Zero disables the protection.
	Percent int64
	// Active returns the pods that may be running. It is needed if Tiered or Percent is set.
	Active func() []*v1.Pod
}

// keepPod sets the protection of a pod's requested memory.
func (k Memory) keepPod(pod *v1.Pod, r *cgroups.Resources) {
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

// requested is the total of the memory requests of each class.
type requested struct{ guaranteed, burstable int64 }

func (k Memory) asked() (out requested) {
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
// all pods together.
func (k Memory) classes(all int64) map[v1.PodQOSClass]*cgroups.Resources {
	out := map[v1.PodQOSClass]*cgroups.Resources{}
	class := func(c v1.PodQOSClass) *cgroups.Resources {
		if out[c] == nil {
			out[c] = &cgroups.Resources{SkipDevices: true}
		}
		return out[c]
	}
	var n requested
	if k.Active != nil && (k.Percent > 0 || k.QoS && k.Tiered) {
		n = k.asked()
	}
	if k.Percent > 0 && all > 0 {
		burstable := all - n.guaranteed*k.Percent/100
		effort := burstable - n.burstable*k.Percent/100
		class(v1.PodQOSBurstable).Memory, class(v1.PodQOSBestEffort).Memory = max(burstable, 1), max(effort, 1)
	}
	if k.QoS { // also if the value is zero, to undo an earlier tiered configuration
		if !k.Tiered {
			n = requested{}
		}
		class(v1.PodQOSGuaranteed).Unified = map[string]string{memoryMin: strconv.FormatInt(n.guaranteed+n.burstable, 10)}
		class(v1.PodQOSBurstable).Unified = map[string]string{memoryLow: strconv.FormatInt(n.burstable, 10)}
	}
	return out
}

// keepClasses sets the memory limits and protections of the QoS classes, if any are configured. If
// a class uses more memory than its limit, its usage becomes the limit. The caller holds mu.
func (p *Pods) keepClasses() {
	if p.c.Memory.Percent == 0 && !p.c.Memory.QoS {
		return
	}
	for c, r := range p.c.Memory.classes(p.c.All.Memory) {
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

func (p *Pods) used(c v1.PodQOSClass) int64 {
	var err error
	file := "memory.usage_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.current"
	}
	page := int64(4096)
	return (parseLimit(&err, readLine(&err, p.classDir(c, "memory"), file))/page + 1) * page
}
