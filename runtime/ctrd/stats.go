package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// ContainerStats returns a container's resource usage.
func (r *Runtime) ContainerStats(ctx context.Context, req *api.ContainerStatsRequest) (*api.ContainerStatsResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	st, err := r.containerStats(ctx, c)
	if err != nil {
		return nil, err
	}
	return &api.ContainerStatsResponse{Stats: st}, nil
}

// ListContainerStats returns the resource usage of the running containers that match a filter. It
// omits containers that cannot be measured.
func (r *Runtime) ListContainerStats(ctx context.Context, req *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	list, err := r.statsOf(ctx, &api.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
	})
	return &api.ListContainerStatsResponse{Stats: list}, err
}

func (r *Runtime) statsOf(ctx context.Context, f *api.ContainerFilter) ([]*api.ContainerStats, error) {
	var running, byShim []*container
	r.mu.Lock()
	f = r.expandIDs(f)
	for _, c := range r.containers {
		if c.pid <= 0 || !c.matchesFilter(f) {
			continue
		}
		if s := r.sandboxes[c.rec.Sandbox]; s != nil && s.tasks != nil {
			byShim = append(byShim, c)
		} else {
			running = append(running, c)
		}
	}
	r.mu.Unlock()
	all := slices.Concat(byShim, running)
	stats, errs := make([]*api.ContainerStats, len(all)), make([]error, len(all))
	var calls sync.WaitGroup
	for i, c := range all {
		measure := func() { stats[i], errs[i] = r.containerStats(ctx, c) }
		if i < len(byShim) { // in parallel, so that shims that do not respond delay the list by statsTimeout in total
			calls.Go(measure)
		} else {
			measure()
		}
	}
	calls.Wait()
	out := make([]*api.ContainerStats, 0, len(all))
	for i, c := range all {
		if errs[i] == nil {
			out = append(out, stats[i])
		} else if err := r.logOmitted(ctx, c, errs[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// logOmitted logs that a container is omitted from a list. If ctx has ended, it returns err
// instead.
func (r *Runtime) logOmitted(ctx context.Context, c *container, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) { // otherwise the container has just ended
		r.log.Warn("a container cannot be measured: its statistics are omitted", "container", c.rec.ID, "error", err)
	}
	return nil
}

func (r *Runtime) containerStats(ctx context.Context, c *container) (*api.ContainerStats, error) {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	cfg := proto.CloneOf(&api.ContainerConfig{
		Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	})
	running := c.pid > 0
	r.mu.Unlock()
	out := &api.ContainerStats{Attributes: &api.ContainerAttributes{
		Id: c.rec.ID, Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
	}}
	if running && s != nil {
		f, err := r.readFigures(ctx, s, c)
		if err != nil {
			return nil, fmt.Errorf("statistics of container %s: %w", c.rec.ID, err)
		}
		out.Cpu, out.Memory, out.Swap = cpuUsage(f), memoryUsage(f), &api.SwapUsage{Timestamp: f.At.UnixNano(), SwapUsageBytes: u64(f.Swap)}
	}
	var err error
	out.WritableLayer, err = r.writableLayerUsage(ctx, c)
	return out, err
}

// statsTimeout is the timeout of a shim's Stats call. The shim may have to query the kernel of a
// virtual machine, which a pod can block.
const statsTimeout = 2 * time.Second

// readFigures reads the resource usage of a container from its cgroup, or from its containerd shim.
func (r *Runtime) readFigures(ctx context.Context, s *sandbox, c *container) (cgroup.Figures, error) {
	if s.tasks == nil {
		return r.cgroups.Read(r.cgroupDir(s, c.rec.ID))
	}
	callCtx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	f, err := s.tasks.Stats(callCtx, c.rec.ID)
	if err != nil && callCtx.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("its shim did not respond within %s: %w", statsTimeout, err)
	}
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		err = fmt.Errorf("%w: %w", err, fs.ErrNotExist) // the container has just ended
	}
	return f, err
}

// cgroupDir returns the path of a container's cgroup relative to the root of the hierarchy.
func (r *Runtime) cgroupDir(s *sandbox, id string) string {
	parent := s.config.GetLinux().GetCgroupParent()
	if r.c.SystemdCgroup {
		return filepath.Join(parent, "islet-"+id+".scope")
	}
	return r.cgroupsPath(s, id)
}

// PodSandboxStats returns the resource usage of a pod, from the pod's cgroup.
func (r *Runtime) PodSandboxStats(ctx context.Context, req *api.PodSandboxStatsRequest) (*api.PodSandboxStatsResponse, error) {
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	st, err := r.sandboxStats(ctx, s)
	if err != nil {
		return nil, err
	}
	return &api.PodSandboxStatsResponse{Stats: st}, nil
}

// ListPodSandboxStats returns the resource usage of the ready sandboxes that match a filter. It
// omits sandboxes that cannot be measured.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, req *api.ListPodSandboxStatsRequest) (*api.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	list, err := r.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{
		Id: f.GetId(), LabelSelector: f.GetLabelSelector(), State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, err
	}
	out := &api.ListPodSandboxStatsResponse{}
	for _, i := range list.Items {
		s, err := r.findSandbox(i.Id)
		if err != nil {
			continue // another call has removed it
		}
		st, err := r.sandboxStats(ctx, s)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			r.log.Warn("a sandbox cannot be measured: its statistics are omitted", "sandbox", i.Id, "error", err)
			continue
		}
		out.Stats = append(out.Stats, st)
	}
	return out, nil
}

func (r *Runtime) sandboxStats(ctx context.Context, s *sandbox) (*api.PodSandboxStats, error) {
	containers, err := r.statsOf(ctx, &api.ContainerFilter{PodSandboxId: s.rec.ID})
	if err != nil {
		return nil, err
	}
	cfg := proto.CloneOf(s.config)
	out := &api.PodSandboxStats{
		Attributes: &api.PodSandboxAttributes{
			Id: s.rec.ID, Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		},
		Linux: &api.LinuxPodSandboxStats{Containers: containers},
	}
	f, err := r.cgroups.Read(s.config.GetLinux().GetCgroupParent())
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("statistics of sandbox %s: %w", s.rec.ID, err)
	}
	out.Linux.Cpu, out.Linux.Memory = cpuUsage(f), memoryUsage(f)
	out.Linux.Network = r.networkUsage(s)
	out.Linux.Process = &api.ProcessUsage{Timestamp: f.At.UnixNano(), ProcessCount: u64(f.PIDs)}
	return out, nil
}

// networkUsage returns the counters of a sandbox's network interfaces. It returns nil if the
// sandbox uses the host's network or has no process.
func (r *Runtime) networkUsage(s *sandbox) *api.NetworkUsage {
	if s.hostNetwork() {
		return nil
	}
	r.mu.Lock()
	pid := s.pid
	for _, c := range r.containers {
		if c.rec.Sandbox == s.rec.ID && c.pid > 0 {
			pid = c.pid
		}
	}
	r.mu.Unlock()
	if pid <= 0 {
		return nil
	}
	out := &api.NetworkUsage{Timestamp: time.Now().UnixNano()}
	for _, i := range (process.Reader{}).Network(pid) {
		usage := &api.NetworkInterfaceUsage{
			Name: i.Name, RxBytes: u64(i.Received), RxErrors: u64(i.ErrorsIn), TxBytes: u64(i.Sent), TxErrors: u64(i.ErrsOut),
		}
		if out.DefaultInterface == nil {
			out.DefaultInterface = usage
		} else {
			out.Interfaces = append(out.Interfaces, usage)
		}
	}
	return out
}

func cpuUsage(f cgroup.Figures) *api.CpuUsage {
	return &api.CpuUsage{Timestamp: f.At.UnixNano(), UsageCoreNanoSeconds: u64(uint64(f.CPU))}
}

func memoryUsage(f cgroup.Figures) *api.MemoryUsage {
	return &api.MemoryUsage{
		Timestamp: f.At.UnixNano(), WorkingSetBytes: u64(f.WorkingSet), UsageBytes: u64(f.Memory), RssBytes: u64(f.RSS),
		AvailableBytes: u64(f.Available()), PageFaults: u64(f.PageFaults), MajorPageFaults: u64(f.MajorFault),
	}
}

func u64(v uint64) *api.UInt64Value { return &api.UInt64Value{Value: v} }
