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

// bounds are the current limits of a cgroup, read from its files. Zero: no limit.
type bounds struct {
	memory, usage int64 // bytes
	quota, period int64 // microseconds
	shares        int64 // on v2 the weight
}

// Grow raises the limits of a running pod that are to be raised (KEP-1287). If the memory limit is
// to be lowered below the pod's usage, it returns an error before it changes anything.
func (p *Pods) Grow(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(want *cgroups.Resources, now bounds) error {
		if lessMemory(want, now) && now.usage >= want.Memory {
			return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)",
				want.Memory, now.usage)
		}
		keepMore(want, now)
		return nil
	})
}

// Shrink sets all limits, after the limits of the pod's containers have been lowered.
func (p *Pods) Shrink(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(*cgroups.Resources, bounds) error { return nil })
}

// resize calls change with the wanted and the current limits of a pod's cgroup, and then sets the
// wanted limits. A pod without a cgroup is skipped; Prepare creates it with its limits.
func (p *Pods) resize(pod *v1.Pod, change func(want *cgroups.Resources, now bounds) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.makeBase(); err != nil {
		return err
	}
	c := demand.Class(pod)
	n := podName(p.root, c, pod.UID)
	paths := p.limited(c, n, []string{"cpu", "memory"})
	m, err := manager.NewWithPaths(n.config(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
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
	want := podLimits(pod, 0, p.period(pod))
	p.c.Memory.keepPod(pod, want)
	wantShares := want.CpuShares
	if err := change(want, now); err != nil {
		return err
	}
	if _, err := p.make(n, want, paths); err != nil {
		return err
	}
	p.keepClasses()
	if c != v1.PodQOSBurstable || want.CpuShares < wantShares {
		return nil
	}
	return p.addRequest(n, milli(demand.Requests(pod)))
}

// keepMore removes from want the limits that are higher now, or not limited.
func keepMore(want *cgroups.Resources, now bounds) {
	if lessMemory(want, now) {
		want.Memory = 0
	}
	if want.CpuQuota > 0 && (now.quota <= 0 || now.quota*int64(want.CpuPeriod) > want.CpuQuota*now.period) {
		want.CpuQuota, want.CpuPeriod = 0, 0
	}
	if int64(inForce(want.CpuShares)) < now.shares {
		want.CpuShares = 0
	}
	// An earlier version did not limit huge pages that a pod does not request; do not forbid them
	// now.
	want.HugetlbLimit = slices.DeleteFunc(want.HugetlbLimit, func(h *cgroups.HugepageLimit) bool { return h.Limit == 0 })
}

func lessMemory(want *cgroups.Resources, now bounds) bool {
	return want.Memory > 0 && (now.memory == 0 || want.Memory < now.memory)
}

// inForce returns the kernel's value for shares: on v2 the weight.
func inForce(shares uint64) uint64 {
	if cgroups.IsCgroup2UnifiedMode() {
		return cgroups.ConvertCPUSharesToCgroupV2Value(shares)
	}
	return shares
}

func readBounds(m cgroups.Manager) (b bounds, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		dir := m.Path("")
		quota, period, _ := strings.Cut(first(&err, dir, "cpu.max"), " ")
		return bounds{
			memory: figure(&err, first(&err, dir, "memory.max")), usage: figure(&err, first(&err, dir, "memory.current")),
			quota: figure(&err, quota), period: figure(&err, period), shares: figure(&err, first(&err, dir, "cpu.weight")),
		}, err
	}
	memory, cpu := m.Path("memory"), m.Path("cpu")
	b = bounds{
		memory: figure(&err, first(&err, memory, "memory.limit_in_bytes")),
		usage:  figure(&err, first(&err, memory, "memory.usage_in_bytes")),
		quota:  figure(&err, first(&err, cpu, "cpu.cfs_quota_us")),
		period: figure(&err, first(&err, cpu, "cpu.cfs_period_us")),
		shares: figure(&err, first(&err, cpu, "cpu.shares")),
	}
	if b.memory > 1<<62 { // the kernel's value for "no limit"
		b.memory = 0
	}
	return b, err
}

// first reads a one-line file of a cgroup. If dir is empty or the file does not exist, it returns
// "". It does nothing after an earlier error in failed.
func first(failed *error, dir, file string) string {
	if dir == "" || *failed != nil {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !os.IsNotExist(err) {
		*failed = err
	}
	return strings.TrimSpace(string(b))
}

// figure parses a number; "", "max" and "-1" are zero, for no limit.
func figure(failed *error, text string) int64 {
	if text == "" || text == "max" || text == "-1" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && *failed == nil {
		*failed = err
	}
	return n
}

// adopt removes limits from the argument that are lower than those of an existing cgroup with
// processes, created by an earlier agent: its limits may be in the middle of a reduction, which
// only Shrink may complete.
func (p *Pods) adopt(n name, limits *cgroups.Resources, paths map[string]string) error {
	m, err := manager.NewWithPaths(n.config(p.systemd, &cgroups.Resources{SkipDevices: true}), paths)
	if err != nil {
		return fmt.Errorf("find cgroup %s: %w", n.cgroupfs(), err)
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
	keepMore(limits, now)
	return nil
}
