package cgroup

import (
	"path/filepath"
	"sort"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// cpuShares converts millicores to CPU shares.
func cpuShares(milli int64) uint64 { return uint64(demand.CPUShares(milli)) }

// addRequest stores the CPU request of a pod and updates the shares of the Burstable class, which
// are the sum of the requests, as with a kubelet.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func (p *Pods) addRequest(n cgroupName, milli int64) error {
	p.burstable[p.leafName(n)] = milli
	return p.setBurstable()
}

func (p *Pods) removeRequest(n cgroupName) error {
	if _, ok := p.burstable[p.leafName(n)]; !ok {
		return nil
	}
	delete(p.burstable, p.leafName(n))
	return p.setBurstable()
}

func (p *Pods) setBurstable() error {
	var sum int64
	for _, m := range p.burstable {
		sum += m
	}
	_, err := p.setLimits(qosName(p.root, v1.PodQOSBurstable), &cgroups.Resources{SkipDevices: true, CpuShares: cpuShares(sum)}, nil)
	return err
}

// restoreBurstable restores the CPU requests of Burstable pods from the cgroups that an earlier process of the agent created, because
// Prepare may not be called for running pods. It derives the requests from the CPU shares. With cgroup v2 the result is approximate,
// because there are fewer weights than shares. The caller passes the directory of the Burstable class for each controller. A cgroup that
// cannot be read is skipped: it is being removed.
func (p *Pods) restoreBurstable(classDirs map[string]string) {
	dir, file := classDirs["cpu"], "cpu.shares"
	if cgroups.IsCgroup2UnifiedMode() {
		dir, file = classDirs[""], "cpu.weight"
	}
	for _, pod := range p.podsIn(v1.PodQOSBurstable, dir) {
		var err error
		n := parseLimit(&err, readLine(&err, filepath.Join(dir, p.leafName(pod)), file))
		if cgroups.IsCgroup2UnifiedMode() {
			n = sharesOf(n)
		}
		if err == nil && n > demand.MinShares {
			p.burstable[p.leafName(pod)] = (n*1000 + 1023) / 1024
		} else if err == nil && n > 0 {
			p.burstable[p.leafName(pod)] = 0
		}
	}
}

// sharesOf returns the smallest number of CPU shares that the kernel's conversion maps to weight.
func sharesOf(weight int64) int64 {
	return int64(sort.Search(demand.MaxShares, func(shares int) bool {
		return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares))) >= weight
	}))
}

// kernelShares converts CPU shares to the value in the cgroup file: with cgroup v2, the weight.
func kernelShares(shares uint64) uint64 {
	if cgroups.IsCgroup2UnifiedMode() {
		return cgroups.ConvertCPUSharesToCgroupV2Value(shares)
	}
	return shares
}
