package cgroup

import (
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// The kernel's files for memory that is never reclaimed, for memory that is reclaimed last, and for the usage from which
// processes are throttled.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
)

// Memory configures the protection of the memory of pods.
type Memory struct {
	Unified bool // whether the host uses cgroup v2
	QoS     bool // whether the feature MemoryQoS is on (KEP-2570) and the host uses cgroup v2
	Tiered  bool // whether requests of guaranteed pods set memory.min, and requests of burstable pods set memory.low
	// Throttle is the fraction of the memory between request and limit that a pod may use before it is throttled. If it
	// is zero, pods are not throttled.
	Throttle float64
	// Percent is the part of the memory requests of better QoS classes that lower classes cannot
	// use. Zero disables the protection.
	Percent int64
	// Active returns the pods that may be running. It must be set if Tiered or Percent is set.
	Active func() []*v1.Pod
	// Protected, if not nil, is called whenever memory.min and memory.low of the QoS classes are calculated because Tiered is set. The
	// arguments are the protected bytes of guaranteed pods (memory.min) and of burstable pods (memory.low).
	Protected func(min, low int64)
}

func (k Memory) isTiered() bool { return k.QoS && k.Tiered }

// forPod returns the values of the memory files of a pod's own cgroup. A protection or throttling that is not configured
// has the kernel's default value. On cgroup v1 forPod returns nil.
func (k Memory) forPod(pod *v1.Pod) map[string]string {
	if !k.Unified {
		return nil
	}
	out := map[string]string{memoryMin: "0", memoryLow: "0", memoryHigh: "max"}
	requests := demand.Requests(pod)
	if n := requests.Memory().Value(); n > 0 && k.isTiered() {
		key := memoryLow
		if demand.Class(pod) == v1.PodQOSGuaranteed {
			key = memoryMin
		}
		out[key] = strconv.FormatInt(n, 10)
	}
	if !k.QoS {
		return out
	}
	if n := demand.PodMemoryHigh(pod, k.Throttle); n > 0 {
		out[memoryHigh] = strconv.FormatInt(n, 10)
	}
	return out
}

// memoryRequests contains the sums of the memory requests of each QoS class.
type memoryRequests struct{ guaranteed, burstable int64 }

func (k Memory) sumRequests() (out memoryRequests) {
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

// classLimits returns the memory limits and protections of the QoS classes, which depend on the memory limit of kubepods.
func (k Memory) classLimits(all int64) map[v1.PodQOSClass]*cgroups.Resources {
	out := map[v1.PodQOSClass]*cgroups.Resources{}
	class := func(c v1.PodQOSClass) *cgroups.Resources {
		if out[c] == nil {
			out[c] = &cgroups.Resources{SkipDevices: true}
		}
		return out[c]
	}
	var n memoryRequests
	if k.Active != nil && (k.Percent > 0 || k.isTiered()) {
		n = k.sumRequests()
	}
	if k.Percent > 0 && all > 0 {
		burstable := all - n.guaranteed*k.Percent/100
		effort := burstable - n.burstable*k.Percent/100
		class(v1.PodQOSBurstable).Memory, class(v1.PodQOSBestEffort).Memory = max(burstable, 1), max(effort, 1)
	}
	if k.isTiered() {
		// The protection of a cgroup is limited by the protection of the cgroups above it.
		class(v1.PodQOSGuaranteed).Unified = map[string]string{
			memoryMin: strconv.FormatInt(n.guaranteed+n.burstable, 10), memoryLow: strconv.FormatInt(n.burstable, 10),
		}
		class(v1.PodQOSBurstable).Unified = map[string]string{memoryLow: strconv.FormatInt(n.burstable, 10)}
		if k.Protected != nil {
			k.Protected(n.guaranteed, n.burstable)
		}
	}
	return out
}

// updateClasses sets the memory limits and protections of the QoS classes, if any are configured. If
// a class uses more memory than its limit, its usage becomes the limit. The caller holds mu.
func (p *Pods) updateClasses() {
	if p.c.Memory.Percent == 0 && !p.c.Memory.isTiered() {
		return
	}
	for c, r := range p.c.Memory.classLimits(p.c.Kubepods.Memory) {
		n := qosName(p.root, c)
		if r.Unified = changedValues(p.base[c][""], r.Unified); r.Unified == nil && r.Memory == 0 {
			continue
		}
		err := p.write(n, r)
		if err != nil && r.Memory > 0 {
			if used := p.usedMemory(c); used > r.Memory {
				r.Memory = used
				err = p.write(n, r)
			}
		}
		if err != nil {
			p.c.Log.Warn("the memory protection of a QoS class could not be set", "cgroup", n.cgroupfsPath(), "error", err)
		}
	}
}

// usedMemory returns the memory usage of a QoS class, rounded up to a whole page.
func (p *Pods) usedMemory(c v1.PodQOSClass) int64 {
	var err error
	file := "memory.usage_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.current"
	}
	page := int64(4096)
	return (parseLimit(&err, readLine(&err, p.classDir(c, "memory"), file))/page + 1) * page
}
