package cgroup

import (
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// What the kernel calls memory that it does not take away, or only if it must.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// Memory says what is kept of it for whom.
type Memory struct {
	QoS    bool // the feature MemoryQoS is on (KEP-2570), and this is cgroup v2
	Tiered bool // guaranteed pods keep what they asked for, burstable ones if possible
	// Percent of what pods of better classes asked for is out of reach of the others; 0: none.
	Percent int64
	// Active lists the pods that may run; it is asked if Tiered or Percent says so.
	Active func() []*v1.Pod
}

// keepPod keeps what a pod asked for.
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

// asked is the memory that pods of a class asked for.
type asked struct{ guaranteed, burstable int64 }

func (k Memory) asked() (out asked) {
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

// classes is what the classes are held to, and keep.
func (k Memory) classes(all int64) map[v1.PodQOSClass]*cgroups.Resources {
	out := map[v1.PodQOSClass]*cgroups.Resources{}
	of := func(c v1.PodQOSClass) *cgroups.Resources {
		if out[c] == nil {
			out[c] = &cgroups.Resources{SkipDevices: true}
		}
		return out[c]
	}
	var n asked
	if k.Active != nil && (k.Percent > 0 || k.QoS && k.Tiered) {
		n = k.asked()
	}
	if k.Percent > 0 && all > 0 {
		burstable := all - n.guaranteed*k.Percent/100
		effort := burstable - n.burstable*k.Percent/100
		of(v1.PodQOSBurstable).Memory, of(v1.PodQOSBestEffort).Memory = max(burstable, 1), max(effort, 1)
	}
	if k.QoS { // also when it was tiered before
		if !k.Tiered {
			n = asked{}
		}
		of(v1.PodQOSGuaranteed).Unified = map[string]string{memoryMin: strconv.FormatInt(n.guaranteed+n.burstable, 10)}
		of(v1.PodQOSBurstable).Unified = map[string]string{memoryLow: strconv.FormatInt(n.burstable, 10)}
	}
	return out
}

// keepClasses sets what is kept for whom, if anything is. Where a class uses more than it
// is to have, it is held to what it uses. The caller holds mu.
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
			p.c.Log.Warn("memory is not kept for pods as the configuration says", "cgroup", n.cgroupfs(), "error", err)
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
	return (figure(&err, first(&err, p.above1(c, "memory"), file))/page + 1) * page
}
