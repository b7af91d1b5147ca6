package usage

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// Summary returns the response for /stats/summary. If short is true, the response contains only CPU, memory and swap,
// and no directory is measured.
func (u *Usage) Summary(ctx context.Context, short bool) (*stats.Summary, error) {
	n, out, err := u.begin(ctx, short)
	if err != nil {
		return nil, err
	}
	sum := &stats.Summary{Node: *out, Pods: make([]stats.PodStats, 0, len(n.j.pods))}
	for _, p := range n.j.pods {
		sum.Pods = append(sum.Pods, n.podStats(ctx, p))
	}
	return sum, nil
}

// StreamSummary returns the same data as Summary, but as an iterator over the pods. It reuses the memory of each pod for
// the next one.
func (u *Usage) StreamSummary(ctx context.Context, short bool) (*exposition.Summary, error) {
	n, out, err := u.begin(ctx, short)
	if err != nil {
		return nil, err
	}
	return &exposition.Summary{Node: *out, Pods: func(yield func(*stats.PodStats) bool) {
		var one stats.PodStats
		for _, p := range n.j.pods {
			n.arena.reset()
			if one = n.podStats(ctx, p); !yield(&one) {
				return
			}
		}
	}}, nil
}

// begin measures the node, and collects the figures that are needed for all pods.
func (u *Usage) begin(ctx context.Context, short bool) (*nodeAnswer, *stats.NodeStats, error) {
	j, err := u.joinFigures(ctx, !short)
	if err != nil {
		return nil, nil, err
	}
	n := &nodeAnswer{Usage: u, short: short, j: j, arena: new(arena)}
	if u.c.Trees != nil {
		n.measure = u.c.Trees.Usage
	}
	out := &stats.NodeStats{NodeName: u.c.NodeName, StartTime: metav1.NewTime(u.c.Started)}
	if u.c.Host != nil {
		if err := n.measureNode(ctx, out); err != nil {
			return nil, nil, fmt.Errorf("measure the host: %w", err)
		}
	}
	if u.c.Volumes != nil && !short {
		var pods []*v1.Pod
		for _, p := range j.pods {
			if p.spec != nil {
				pods = append(pods, p.spec)
			}
		}
		n.mounted = u.c.Volumes(ctx, pods)
	}
	n.arena = new(arena) // a reset must not affect the values of the node
	return n, out, nil
}

// A nodeAnswer is a summary under construction.
type nodeAnswer struct {
	*Usage
	*arena
	short bool
	j     *joinedFigures
	fs    *stats.FsStats // file system of the node; nil if it was not measured
	image *stats.FsStats // file system of the containers

	mounted map[types.UID][]stats.VolumeStats                // measures the volumes that are not directories on the node
	measure func(ctx context.Context, dir string) disk.Usage // measures a directory; nil if directories are not measured
}

func (n *nodeAnswer) podStats(ctx context.Context, p *pod) stats.PodStats {
	out := stats.PodStats{PodRef: stats.PodReference{Name: p.name, Namespace: p.namespace, UID: p.uid}}
	if p.started != nil {
		out.StartTime = *p.started
	}
	begin := len(n.containers)
	for _, c := range p.containers {
		n.containers = append(n.containers, n.containerStats(ctx, c))
	}
	out.Containers = sliceSince(n.containers, begin)
	if g := p.group; g != nil {
		out.CPU, out.Memory, out.Swap = n.cpuOf(g), n.memoryOf(g), n.swapOf(g)
	} else {
		out.CPU, out.Memory = totalStats(out.Containers)
	}
	if n.short {
		return out
	}
	if g := p.group; g != nil {
		out.IO, out.Network = n.ioOf(g), n.networkOf(g)
		out.ProcessStats = n.processes.put(stats.ProcessStats{ProcessCount: &g.PIDs})
	}
	n.addStorage(ctx, p, &out)
	return out
}

func (n *nodeAnswer) containerStats(ctx context.Context, c *container) stats.ContainerStats {
	out := stats.ContainerStats{Name: c.name, StartTime: metav1.NewTime(c.started)}
	switch {
	case c.group != nil:
		out.CPU, out.Memory, out.Swap = n.cpuOf(c.group), n.memoryOf(c.group), n.swapOf(c.group)
	case c.reported != nil:
		setReported(&out, c)
	}
	if n.short {
		return out
	}
	if c.group != nil {
		out.IO = n.ioOf(c.group)
	}
	if fs := c.layer; fs != nil {
		out.Rootfs = n.onFs(n.image, fs.Timestamp, fs.UsedBytes.GetValue(), fs.InodesUsed.GetValue())
	}
	if n.measure != nil && n.c.LogsDir != "" {
		d := n.measure(ctx, n.c.LogsDir+"/"+c.namespace+"_"+c.pod+"_"+c.uid+"/"+c.name)
		out.Logs = n.onFs(n.fs, d.At.UnixNano(), d.Bytes, d.Inodes)
	}
	return out
}

// setReported sets a container's figures to those that the runtime has reported.
func setReported(out *stats.ContainerStats, c *container) {
	if cpu := c.reported.Cpu; cpu != nil {
		out.CPU = &stats.CPUStats{
			Time: metav1.NewTime(time.Unix(0, cpu.Timestamp)), UsageNanoCores: c.nanoCores,
			UsageCoreNanoSeconds: valueOrNil(cpu.UsageCoreNanoSeconds),
		}
	}
	if m := c.reported.Memory; m != nil {
		out.Memory = &stats.MemoryStats{Time: metav1.NewTime(time.Unix(0, m.Timestamp)),
			WorkingSetBytes: valueOrNil(m.WorkingSetBytes), UsageBytes: valueOrNil(m.UsageBytes),
			RSSBytes: valueOrNil(m.RssBytes), AvailableBytes: valueOrNil(m.AvailableBytes),
			PageFaults: valueOrNil(m.PageFaults), MajorPageFaults: valueOrNil(m.MajorPageFaults)}
	}
	if s := c.reported.Swap; s != nil {
		out.Swap = &stats.SwapStats{
			Time: metav1.NewTime(time.Unix(0, s.Timestamp)), SwapUsageBytes: valueOrNil(s.SwapUsageBytes),
			SwapAvailableBytes: valueOrNil(s.SwapAvailableBytes),
		}
	}
}

func (n *nodeAnswer) cpuOf(g *sample.Group) *stats.CPUStats {
	return n.cpus.put(stats.CPUStats{
		Time: metav1.NewTime(g.At), UsageNanoCores: g.NanoCores,
		UsageCoreNanoSeconds: n.numbers.put(uint64(g.CPU)), PSI: n.psi(g.Pressure.CPU),
	})
}

func (n *nodeAnswer) memoryOf(g *sample.Group) *stats.MemoryStats {
	out := n.memories.put(stats.MemoryStats{Time: metav1.NewTime(g.At), UsageBytes: &g.Memory,
		WorkingSetBytes: &g.WorkingSet, RSSBytes: &g.RSS,
		PageFaults: &g.PageFaults, MajorPageFaults: &g.MajorFault, PSI: n.psi(g.Pressure.Memory)})
	if g.Limit > 0 {
		out.AvailableBytes = n.numbers.put(g.Available())
	}
	return out
}

func (n *nodeAnswer) ioOf(g *sample.Group) *stats.IOStats {
	if p := n.psi(g.Pressure.IO); p != nil {
		return n.ios.put(stats.IOStats{Time: metav1.NewTime(g.At), PSI: p})
	}
	return nil
}

// swapOf returns a cgroup's use of swap. If there is a limit, it also returns how much more swap the cgroup may use.
func (n *nodeAnswer) swapOf(g *sample.Group) *stats.SwapStats {
	out := n.swaps.put(stats.SwapStats{Time: metav1.NewTime(g.At), SwapUsageBytes: &g.Swap})
	if g.SwapLimited {
		out.SwapAvailableBytes = n.numbers.put(g.SwapMax - min(g.SwapMax, g.Swap))
	}
	return out
}

func (n *nodeAnswer) psi(p *cgroup.Pressure) *stats.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s cgroup.Stall) stats.PSIData {
		return stats.PSIData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return n.stalls.put(stats.PSIStats{Full: data(p.Full), Some: data(p.Some)})
}

// networkOf returns the figures of all interfaces. The default interface is eth0, as in a kubelet. If there is none,
// it is the first interface.
func (n *nodeAnswer) networkOf(g *sample.Group) *stats.NetworkStats {
	if len(g.Network) == 0 {
		return nil
	}
	out := n.networks.put(stats.NetworkStats{Time: metav1.NewTime(g.At)})
	begin := len(n.interfaces)
	for i := range g.Network {
		one := interfaceOf(&g.Network[i])
		n.interfaces = append(n.interfaces, one)
		if out.Name == "" || one.Name == "eth0" {
			out.InterfaceStats = one
		}
	}
	out.Interfaces = sliceSince(n.interfaces, begin)
	return out
}

func interfaceOf(i *process.Interface) stats.InterfaceStats {
	return stats.InterfaceStats{Name: i.Name, RxBytes: &i.Received, RxErrors: &i.ErrorsIn, TxBytes: &i.Sent, TxErrors: &i.ErrsOut}
}

// onFs returns file system figures for one part of a file system, such as the logs of a container. The used bytes and
// inodes are the figures of this part. The other figures describe the whole file system and come from fs, which may be nil.
func (n *nodeAnswer) onFs(fs *stats.FsStats, at int64, bytes, inodes uint64) *stats.FsStats {
	out := n.files.put(stats.FsStats{
		Time: metav1.NewTime(time.Unix(0, at)), UsedBytes: n.numbers.put(bytes),
		InodesUsed: n.numbers.put(inodes),
	})
	if fs != nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = fs.AvailableBytes, fs.CapacityBytes, fs.InodesFree, fs.Inodes
	}
	return out
}

// totalStats returns the sum of the figures of the containers. If a figure is unknown for one container, it is unknown for
// the sum.
func totalStats(containers []stats.ContainerStats) (*stats.CPUStats, *stats.MemoryStats) {
	cpu, mem := &stats.CPUStats{}, &stats.MemoryStats{}
	add := func(to **uint64, v *uint64, first bool) {
		switch {
		case v == nil || !first && *to == nil:
			*to = nil
		case first:
			n := *v
			*to = &n
		default:
			**to += *v
		}
	}
	for i, c := range containers {
		if c.CPU != nil {
			cpu.Time = c.CPU.Time
			add(&cpu.UsageNanoCores, c.CPU.UsageNanoCores, i == 0)
			add(&cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds, i == 0)
		}
		if c.Memory != nil {
			mem.Time = c.Memory.Time
			add(&mem.WorkingSetBytes, c.Memory.WorkingSetBytes, i == 0)
			add(&mem.UsageBytes, c.Memory.UsageBytes, i == 0)
			add(&mem.RSSBytes, c.Memory.RSSBytes, i == 0)
		}
	}
	return cpu, mem
}
