package usage

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/sample"
)

// measureNode measures the machine. Both the usage and the working set are the total memory minus the kernel's estimate of
// the available memory. The method addGroups adds the page cache to the usage, as in a cgroup's usage.
func (n *nodeAnswer) measureNode(ctx context.Context, out *stats.NodeStats) error {
	u, err := n.c.Host.Usage(ctx)
	if err != nil {
		return err
	}
	if id, err := n.c.Host.Identity(ctx); err == nil {
		out.StartTime = metav1.NewTime(id.BootTime)
	}
	at := metav1.NewTime(u.Time)
	nanoCores, busy := uint64(u.CPU.Cores*float64(time.Second)), uint64(u.CPU.Busy)
	out.CPU = &stats.CPUStats{Time: at, UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &busy}
	out.Memory = &stats.MemoryStats{
		Time: at, AvailableBytes: &u.Memory.Available, UsageBytes: &u.Memory.Used,
		WorkingSetBytes: &u.Memory.Used,
	}
	swapped := u.Memory.SwapTotal - min(u.Memory.SwapTotal, u.Memory.SwapFree)
	out.Swap = &stats.SwapStats{Time: at, SwapAvailableBytes: &u.Memory.SwapFree, SwapUsageBytes: &swapped}
	if n.j.sample != nil {
		n.addGroups(out)
	}
	if n.short {
		return nil
	}
	n.addDisks(ctx, out)
	if r, err := n.c.Host.Processes(); err == nil {
		most, now := int64(r.Max), int64(r.Now)
		out.Rlimit = &stats.RlimitStats{Time: at, MaxPID: &most, NumOfRunningProcesses: &now}
	}
	return nil
}

// addGroups adds the figures of the root cgroup and the system cgroups.
func (n *nodeAnswer) addGroups(out *stats.NodeStats) {
	if g := n.j.sample.Find("/"); g != nil {
		out.Memory.RSSBytes, out.Memory.PageFaults, out.Memory.MajorPageFaults = &g.RSS, &g.PageFaults, &g.MajorFault
		used := max(g.Memory, *out.Memory.WorkingSetBytes) // the kernel's own memory is included only in the working set
		out.Memory.UsageBytes = &used
	}
	p := cgroup.ReadPressures("/proc/pressure")
	out.CPU.PSI, out.Memory.PSI = n.psi(p.CPU), n.psi(p.Memory)
	if io := n.psi(p.IO); io != nil && !n.short {
		out.IO = &stats.IOStats{Time: out.CPU.Time, PSI: io}
	}
	if g := n.j.sample.Find("/"); g != nil && !n.short {
		out.Network = n.networkOf(g)
	}
	for _, name := range []string{
		stats.SystemContainerKubelet, stats.SystemContainerRuntime, stats.SystemContainerMisc,
		stats.SystemContainerPods,
	} {
		path := n.c.System[name]
		if path == "" {
			continue
		}
		if g := n.j.sample.Find(path); g != nil && (g.Kind == sample.Other || g.Kind == sample.Pods) {
			out.SystemContainers = append(out.SystemContainers, stats.ContainerStats{Name: name, StartTime: metav1.NewTime(g.Created),
				CPU: n.cpuOf(g), Memory: n.memoryOf(g), Swap: n.swapOf(g)})
		}
	}
}

// addDisks adds the file systems of the node, images and containers.
func (n *nodeAnswer) addDisks(ctx context.Context, out *stats.NodeStats) {
	if d, err := n.c.Host.Disk(ctx, n.c.Root); err == nil {
		n.fs = fsOf(d)
		out.Fs = n.fs
	}
	if n.c.Images == nil {
		return
	}
	info, err := n.c.Images.ImageFsInfo(ctx, &api.ImageFsInfoRequest{})
	if err != nil {
		return
	}
	out.Runtime = &stats.RuntimeStats{}
	for _, f := range info.ImageFilesystems {
		out.Runtime.ImageFs = n.runtimeFs(ctx, f)
	}
	for _, f := range info.ContainerFilesystems {
		out.Runtime.ContainerFs = n.runtimeFs(ctx, f)
		n.image = out.Runtime.ContainerFs
	}
	if n.image == nil {
		n.image = out.Runtime.ImageFs
	}
}

// runtimeFs returns a file system of the runtime, and how much of it the runtime uses.
func (n *nodeAnswer) runtimeFs(ctx context.Context, f *api.FilesystemUsage) *stats.FsStats {
	at, used, inodes := metav1.NewTime(time.Unix(0, f.Timestamp)), f.UsedBytes.GetValue(), f.InodesUsed.GetValue()
	out := &stats.FsStats{Time: at, UsedBytes: &used, InodesUsed: &inodes}
	if d, err := n.c.Host.Disk(ctx, f.GetFsId().GetMountpoint()); err == nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = &d.Free, &d.Total, &d.InodesFree, &d.Inodes
	}
	return out
}

func fsOf(d host.Disk) *stats.FsStats {
	return &stats.FsStats{Time: metav1.Now(), AvailableBytes: &d.Free, CapacityBytes: &d.Total, UsedBytes: &d.Used,
		Inodes: &d.Inodes, InodesFree: &d.InodesFree, InodesUsed: &d.InodesUsed}
}
