package cgroup

import (
	"cmp"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

// What the kernel takes, and the kubelet's period.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds

	usualPeriod = 100000 // microseconds
)

// shares turns thousandths of a CPU into a weight.
func shares(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// podLimits are those of a pod's own cgroup.
func podLimits(pod *v1.Pod, pids, period int64) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, CpuShares: minShares}
	if pids > 0 {
		r.PidsLimit = pids
	}
	if class(pod) != v1.PodQOSBestEffort {
		r.CpuShares = shares(total(pod, requests, v1.ResourceCPU))
	}
	if declared(pod, v1.ResourceCPU) && period >= 0 {
		period = cmp.Or(period, usualPeriod)
		r.CpuPeriod = uint64(period)
		r.CpuQuota = max(total(pod, limits, v1.ResourceCPU)*period/1000, minQuota)
	}
	if declared(pod, v1.ResourceMemory) {
		r.Memory = total(pod, limits, v1.ResourceMemory)
	}
	return r
}
