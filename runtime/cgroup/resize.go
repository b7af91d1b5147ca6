package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// currentBounds contains the current limits and the memory usage of a cgroup. A limit of zero means no limit.
type currentBounds struct {
	memory, usage int64 // bytes
	quota, period int64 // microseconds
	shares        int64 // the weight with cgroup v2
}

// Grow raises limits of a running pod (KEP-1287). It does not lower limits. If the new memory limit
// is below the usage of the pod, it returns an error and changes nothing.
func (p *Pods) Grow(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(want *cgroups.Resources, now currentBounds) error {
		if lowersMemory(want, now) && now.usage >= want.Memory {
			return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)",
				want.Memory, now.usage)
		}
		dropDecreases(want, now)
		return nil
	})
}

// Shrink sets all limits. Call it after the limits of the pod's containers were lowered.
func (p *Pods) Shrink(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(*cgroups.Resources, currentBounds) error { return nil })
}

// resize sets new limits for a pod's cgroup. Before that, it calls change with the new and the current limits. The function change may
// remove some of the new limits. If the cgroup does not exist, resize does nothing, because Prepare will create the cgroup with its limits.
func (p *Pods) resize(pod *v1.Pod, change func(want *cgroups.Resources, now currentBounds) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.createBase(); err != nil {
		return err
	}
	c := demand.Class(pod)
	n := podName(p.root, c, pod.UID)
	paths := p.limitedDirs(c, n, []string{"cpu", "memory"})
	m, err := manager.NewWithPaths(n.cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
	if err != nil {
		return fmt.Errorf("find the cgroup of pod %s: %w", pod.UID, err)
	}
	if !anyExists(m.GetPaths()) {
		return nil
	}
	now, err := readBounds(m)
	if err != nil {
		return err
	}
	want := podLimits(pod, 0, p.quotaPeriod(pod))
	want.Unified = changedValues(m.Path(""), p.c.Memory.forPod(pod))
	wantShares := want.CpuShares
	if err := change(want, now); err != nil {
		return err
	}
	if _, err := p.setLimits(n, want, paths); err != nil {
		return err
	}
	p.updateClasses()
	if c != v1.PodQOSBurstable || want.CpuShares < wantShares {
		return nil
	}
	return p.addRequest(n, cpuMillis(demand.Requests(pod)))
}

// dropDecreases removes those new limits whose current value is higher or unlimited. The protection and throttling of
// memory change together with its limit.
func dropDecreases(want *cgroups.Resources, now currentBounds) {
	if lowersMemory(want, now) {
		want.Memory, want.Unified = 0, nil
	}
	if want.CpuQuota > 0 && (now.quota <= 0 || now.quota*int64(want.CpuPeriod) > want.CpuQuota*now.period) {
		want.CpuQuota, want.CpuPeriod = 0, 0
	}
	if int64(kernelShares(want.CpuShares)) < now.shares {
		want.CpuShares = 0
	}
	// Earlier versions did not limit huge pages that a pod does not request. So running pods may
	// use such huge pages.
	want.HugetlbLimit = slices.DeleteFunc(want.HugetlbLimit, func(h *cgroups.HugepageLimit) bool { return h.Limit == 0 })
}

func lowersMemory(want *cgroups.Resources, now currentBounds) bool {
	return want.Memory > 0 && (now.memory == 0 || want.Memory < now.memory)
}

func readBounds(m cgroups.Manager) (b currentBounds, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		dir := m.Path("")
		quota, period, _ := strings.Cut(readLine(&err, dir, "cpu.max"), " ")
		return currentBounds{
			memory: parseLimit(&err, readLine(&err, dir, "memory.max")), usage: parseLimit(&err, readLine(&err, dir, "memory.current")),
			quota: parseLimit(&err, quota), period: parseLimit(&err, period), shares: parseLimit(&err, readLine(&err, dir, "cpu.weight")),
		}, err
	}
	memory, cpu := m.Path("memory"), m.Path("cpu")
	b = currentBounds{
		memory: parseLimit(&err, readLine(&err, memory, "memory.limit_in_bytes")),
		usage:  parseLimit(&err, readLine(&err, memory, "memory.usage_in_bytes")),
		quota:  parseLimit(&err, readLine(&err, cpu, "cpu.cfs_quota_us")),
		period: parseLimit(&err, readLine(&err, cpu, "cpu.cfs_period_us")),
		shares: parseLimit(&err, readLine(&err, cpu, "cpu.shares")),
	}
	if b.memory > 1<<62 { // the kernel's value for "no limit"
		b.memory = 0
	}
	return b, err
}

// readLine reads a file of a cgroup, which usually has one line. It returns "" if dir is empty or the file
// does not exist. It stores an error in *failed. If *failed already contains an error, it does
// nothing.
func readLine(failed *error, dir, file string) string {
	if dir == "" || *failed != nil {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !os.IsNotExist(err) {
		*failed = err
	}
	return strings.TrimSpace(string(b))
}

// parseLimit parses a limit. It returns zero (no limit) for "", "max" and "-1". It stores an error
// in *failed.
func parseLimit(failed *error, text string) int64 {
	if text == "" || text == "max" || text == "-1" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && *failed == nil {
		*failed = err
	}
	return n
}

// adoptLimits prepares limits for a cgroup that an earlier process of the agent may have created. If the cgroup has processes, limits that
// are lower than the current ones are removed: a resize may be in progress, and only Shrink lowers limits.
func (p *Pods) adoptLimits(n cgroupName, limits *cgroups.Resources, paths map[string]string) error {
	m, err := manager.NewWithPaths(n.cgroupConfig(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
	if err != nil {
		return fmt.Errorf("find cgroup %s: %w", n.cgroupfsPath(), err)
	}
	dir := m.Path("memory")
	if dir == "" || !cgroups.PathExists(dir) {
		return nil
	}
	if pids, err := cgroups.GetAllPids(dir); err != nil || len(pids) == 0 {
		return nil // no process is affected
	}
	now, err := readBounds(m)
	if err != nil {
		return err
	}
	dropDecreases(limits, now)
	return nil
}
