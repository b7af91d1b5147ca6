package machine

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/metrics/host"
)

// Stats returns how the server measures the host: islet top node, and the
// node's part of /stats/summary.
func (n *Machine) Stats() func(context.Context) (stats.NodeStats, error) {
	h := host.New(host.Config{})
	started := metav1.Now()
	return func(ctx context.Context) (stats.NodeStats, error) {
		u, err := h.Usage(ctx)
		if err != nil {
			return stats.NodeStats{}, err
		}
		at := metav1.NewTime(u.Time)
		nanoCores, busy := uint64(u.CPU.Cores*float64(time.Second)), uint64(u.CPU.Busy)
		out := stats.NodeStats{NodeName: n.cfg.Node.Name, StartTime: started,
			CPU: &stats.CPUStats{Time: at, UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &busy},
			Memory: &stats.MemoryStats{Time: at, AvailableBytes: &u.Memory.Available, UsageBytes: &u.Memory.Used,
				WorkingSetBytes: &u.Memory.Used}}
		if d, err := h.Disk(ctx, n.cfg.Dirs.State); err == nil {
			out.Fs = &stats.FsStats{Time: at, AvailableBytes: &d.Free, CapacityBytes: &d.Total, UsedBytes: &d.Used,
				Inodes: &d.Inodes, InodesFree: &d.InodesFree, InodesUsed: &d.InodesUsed}
		}
		return out, nil
	}
}
