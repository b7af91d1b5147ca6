package taskshim

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"

	"github.com/islet-edge/islet/metrics/cgroup"
)

// Stats returns the resource usage of a container. It asks the shim, because the container may not
// have a cgroup on the host.
func (s *Shim) Stats(ctx context.Context, id string) (cgroup.Figures, error) {
	var out task.StatsResponse
	if err := s.call(ctx, "Stats", &task.StatsRequest{ID: id}, &out); err != nil {
		return cgroup.Figures{}, err
	}
	return decodeFigures(out.GetStats().GetTypeUrl(), out.GetStats().GetValue())
}

// decodeFigures decodes metrics of cgroup v1 or v2. The type URL distinguishes them.
func decodeFigures(kind string, value []byte) (f cgroup.Figures, err error) {
	f.At = time.Now()
	switch kind {
	case "io.containerd.cgroups.v1.Metrics":
		var m v1.Metrics
		if err := proto.Unmarshal(value, &m); err != nil {
			return f, err
		}
		mem := m.GetMemory()
		f.CPU, f.PIDs = safeDuration(m.GetCPU().GetUsage().GetTotal(), 1), m.GetPids().GetCurrent()
		f.Memory, f.RSS, f.Limit = mem.GetUsage().GetUsage(), mem.GetTotalRSS(), mem.GetUsage().GetLimit()
		f.WorkingSet = cgroup.WorkingSet(f.Memory, mem.GetTotalInactiveFile())
		f.PageFaults, f.MajorFault = mem.GetPgFault(), mem.GetPgMajFault()
		if both := mem.GetSwap().GetUsage(); both > f.Memory { // memory plus swap
			f.Swap = both - f.Memory
		}
	case "io.containerd.cgroups.v2.Metrics":
		var m v2.Metrics
		if err := proto.Unmarshal(value, &m); err != nil {
			return f, err
		}
		mem := m.GetMemory()
		f.CPU, f.PIDs = safeDuration(m.GetCPU().GetUsageUsec(), time.Microsecond), m.GetPids().GetCurrent()
		f.Memory, f.RSS, f.Limit, f.Swap = mem.GetUsage(), mem.GetAnon(), mem.GetUsageLimit(), mem.GetSwapUsage()
		f.WorkingSet = cgroup.WorkingSet(f.Memory, mem.GetInactiveFile())
		f.PageFaults, f.MajorFault = mem.GetPgfault(), mem.GetPgmajfault()
	default:
		return f, fmt.Errorf("the containerd shim returned metrics of an unknown type, %.100q", kind)
	}
	if f.Limit > math.MaxInt64/2 { // the kernel's value for "no limit"
		f.Limit = 0
	}
	return f, nil
}

// safeDuration returns n units. If n units are too large for a Duration, the result is the maximum Duration.
func safeDuration(n uint64, unit time.Duration) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/unit))) * unit
}
