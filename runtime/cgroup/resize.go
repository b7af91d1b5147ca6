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

// bounds are what a cgroup is held to now, as its files say. Zero: no limit.
type bounds struct {
	memory, usage int64 // bytes
	quota, period int64 // microseconds
	shares        int64 // v2: the weight
}

// Grow raises what a pod that runs is to get more of (KEP-1287). A memory limit that is
// to be less, but that the pod is above, is refused before anything changes.
func (p *Pods) Grow(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(want *cgroups.Resources, now bounds) error {
		if lessMemory(want, now) && now.usage >= want.Memory {
			return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)", want.Memory, now.usage)
		}
		keepMore(want, now)
		return nil
	})
}

// Shrink lowers what it is to get less of, once its containers have less.
func (p *Pods) Shrink(_ context.Context, pod *v1.Pod) error {
	return p.resize(pod, func(*cgroups.Resources, bounds) error { return nil })
}

// resize sets the limits of a pod's cgroup after change has seen them beside those of
// now. A pod without a cgroup gets it, with its limits, from Prepare.
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
	asks := want.CpuShares
	if err := change(want, now); err != nil {
		return err
	}
	if _, err := p.make(n, want, paths); err != nil {
		return err
	}
	p.keepClasses()
	if c != v1.PodQOSBurstable || want.CpuShares < asks {
		return nil
	}
	return p.asks(n, milli(demand.Requests(pod)))
}

// keepMore leaves what is held to more now, or not at all.
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
	// Huge pages that a pod does not ask for it may have from an earlier version, which did not
	// forbid them.
	want.HugetlbLimit = slices.DeleteFunc(want.HugetlbLimit, func(h *cgroups.HugepageLimit) bool { return h.Limit == 0 })
}

func lessMemory(want *cgroups.Resources, now bounds) bool {
	return want.Memory > 0 && (now.memory == 0 || want.Memory < now.memory)
}

// inForce is what the kernel makes of shares.
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
		return bounds{memory: figure(&err, first(&err, dir, "memory.max")), usage: figure(&err, first(&err, dir, "memory.current")),
			quota: figure(&err, quota), period: figure(&err, period), shares: figure(&err, first(&err, dir, "cpu.weight"))}, err
	}
	memory, cpu := m.Path("memory"), m.Path("cpu")
	b = bounds{memory: figure(&err, first(&err, memory, "memory.limit_in_bytes")), usage: figure(&err, first(&err, memory, "memory.usage_in_bytes")),
		quota: figure(&err, first(&err, cpu, "cpu.cfs_quota_us")), period: figure(&err, first(&err, cpu, "cpu.cfs_period_us")), shares: figure(&err, first(&err, cpu, "cpu.shares"))}
	if b.memory > 1<<62 { // the kernel's way to say none
		b.memory = 0
	}
	return b, err
}

// first reads a file of the kernel with one line; of a controller that is not there it
// is empty.
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

// figure is zero for none.
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

// adopt leaves a cgroup in which something runs, of an agent before this one, all that it
// has: it may have been on its way down, and Shrink has not checked that it can be.
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
		return nil // nothing suffers from less
	}
	now, err := readBounds(m)
	if err != nil {
		return err
	}
	keepMore(limits, now)
	return nil
}
