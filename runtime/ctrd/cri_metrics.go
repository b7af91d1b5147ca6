package ctrd

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
)

// The metrics have cAdvisor's names and labels (KEP-2371). The CRI has only integer values, so
// seconds are rounded down, as in other runtimes.

// podLabels are the labels of every metric. As in cAdvisor, the label id is the path of the cgroup,
// and the label name is the ID of the container or sandbox.
var podLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// A metric describes one of the metrics that containers or sandboxes have. The function read returns the metric's values in a sample: a
// single value, or one for each combination of its own labels.
type metric struct {
	name, help string
	kind       api.MetricType
	labels     []string // labels in addition to podLabels
	read       func(*sample) []value
}

type value struct {
	labels []string // values of the metric's own labels
	n      uint64
}

// A sample contains the data from which the metrics are computed. The sample of a sandbox contains
// only network data.
type sample struct {
	cgroup.Details
	c       *api.ContainerStatus
	disk    *api.FilesystemUsage
	free    unix.Statfs_t // usage of the file system with the writable layer
	network []process.Interface
	open    process.Files
	names   map[string]string // device names by device number, shared by all samples of a response
}

// deviceName returns a device's name.
func (s *sample) deviceName(number string) string {
	name, ok := s.names[number]
	if !ok {
		name = disk.DeviceFile("/sys", number)
		s.names[number] = name
	}
	return name
}

const (
	gauge   = api.MetricType_GAUGE
	counter = api.MetricType_COUNTER
)

func singleValue(get func(*sample) uint64) func(*sample) []value {
	return func(s *sample) []value { return []value{{n: get(s)}} }
}

func readSeconds(get func(*sample) time.Duration) func(*sample) []value {
	return singleValue(func(s *sample) uint64 { return uint64(get(s) / time.Second) })
}

func readDevices(get func(cgroup.IO) uint64) func(*sample) []value {
	return func(s *sample) (out []value) {
		for _, io := range s.IO {
			out = append(out, value{[]string{s.deviceName(io.Device)}, get(io)})
		}
		return out
	}
}

// openFiles returns the number of open files, or no value if no process of the container could be read.
func openFiles(get func(process.Files) uint64) func(*sample) []value {
	return func(s *sample) []value {
		if !s.open.Known {
			return nil
		}
		return []value{{n: get(s.open)}}
	}
}

// blockIO returns the bytes that the container has read from and written to each device.
func blockIO(s *sample) (out []value) {
	for _, io := range s.IO {
		major, minor, _ := strings.Cut(io.Device, ":")
		name := s.deviceName(io.Device)
		out = append(out, value{[]string{name, major, minor, "Read"}, io.ReadBytes},
			value{[]string{name, major, minor, "Write"}, io.WriteBytes})
	}
	return out
}

func readInterfaces(get func(process.Interface) uint64) func(*sample) []value {
	return func(s *sample) (out []value) {
		for _, i := range s.network {
			out = append(out, value{[]string{i.Name}, get(i)})
		}
		return out
	}
}

// readLimit returns a function that reads a limit of the container. The value is zero if the limit is
// missing or negative, which means unlimited.
func readLimit(get func(*api.LinuxContainerResources) int64) func(*sample) []value {
	return singleValue(func(s *sample) uint64 { return uint64(max(get(s.c.GetResources().GetLinux()), 0)) })
}

var containerMetrics = []metric{
	{"container_cpu_usage_seconds_total", "CPU time used, in seconds of one core", counter, []string{"cpu"},
		func(s *sample) []value { return []value{{[]string{"total"}, uint64(s.CPU / time.Second)}} }},
	{"container_cpu_user_seconds_total", "CPU time used by programs, in seconds of one core", counter, nil,
		readSeconds(func(s *sample) time.Duration { return s.User })},
	{"container_cpu_system_seconds_total", "CPU time used by the kernel, in seconds of one core", counter, nil,
		readSeconds(func(s *sample) time.Duration { return s.System })},
	{"container_cpu_cfs_periods_total", "periods in which a CPU limit was in force", counter, nil,
		singleValue(func(s *sample) uint64 { return s.Periods })},
	{"container_cpu_cfs_throttled_periods_total", "periods in which a CPU limit was used up", counter, nil,
		singleValue(func(s *sample) uint64 { return s.Throttled })},
	{"container_cpu_cfs_throttled_seconds_total", "time for which processes were throttled by a CPU limit", counter, nil,
		readSeconds(func(s *sample) time.Duration { return s.ThrottledTime })},

	{"container_memory_usage_bytes", "memory in use, page cache included", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.Memory })},
	{"container_memory_working_set_bytes", "memory in use, inactive page cache excluded", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.WorkingSet })},
	{"container_memory_max_usage_bytes", "maximum memory in use so far", gauge, nil, singleValue(func(s *sample) uint64 { return s.Peak })},
	{"container_memory_rss", "anonymous memory", gauge, nil, singleValue(func(s *sample) uint64 { return s.RSS })},
	{"container_memory_cache", "page cache", gauge, nil, singleValue(func(s *sample) uint64 { return s.Cache })},
	{"container_memory_mapped_file", "page cache that is mapped", gauge, nil, singleValue(func(s *sample) uint64 { return s.Mapped })},
	{"container_memory_kernel_usage", "kernel memory", gauge, nil, singleValue(func(s *sample) uint64 { return s.Kernel })},
	{"container_memory_swap", "memory that is swapped out", gauge, nil, singleValue(func(s *sample) uint64 { return s.Swap })},
	{"container_memory_total_active_file_bytes", "page cache that was used recently", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.ActiveFile })},
	{"container_memory_total_inactive_file_bytes", "page cache that was not used recently", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.InactiveFile })},
	{"container_memory_failcnt", "number of memory limit hits", counter, nil, singleValue(func(s *sample) uint64 { return s.LimitHits })},
	{"container_memory_failures_total", "page faults", counter, []string{"failure_type", "scope"}, func(s *sample) []value {
		return []value{{[]string{"pgfault", "container"}, s.OwnFaults}, {[]string{"pgmajfault", "container"}, s.OwnMajor},
			{[]string{"pgfault", "hierarchy"}, s.PageFaults}, {[]string{"pgmajfault", "hierarchy"}, s.MajorFault}}
	}},
	{"container_oom_events_total", "processes that the kernel killed at the memory limit", counter, nil,
		singleValue(func(s *sample) uint64 { return s.OOMKills })},

	{"container_fs_usage_bytes", "size of the container's writable layer", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.disk.GetUsedBytes().GetValue() })},
	{"container_fs_limit_bytes", "size of the file system that has the writable layer", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.free.Blocks * uint64(s.free.Bsize) })},
	{"container_fs_inodes_total", "inodes of that file system", gauge, nil, singleValue(func(s *sample) uint64 { return s.free.Files })},
	{"container_fs_inodes_free", "free inodes of that file system", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.free.Ffree })},
	{"container_fs_reads_bytes_total", "bytes read from a device", counter, []string{"device"},
		readDevices(func(i cgroup.IO) uint64 { return i.ReadBytes })},
	{"container_fs_writes_bytes_total", "bytes written to a device", counter, []string{"device"},
		readDevices(func(i cgroup.IO) uint64 { return i.WriteBytes })},
	{"container_fs_reads_total", "reads from a device", counter, []string{"device"},
		readDevices(func(i cgroup.IO) uint64 { return i.Reads })},
	{"container_fs_writes_total", "writes to a device", counter, []string{"device"},
		readDevices(func(i cgroup.IO) uint64 { return i.Writes })},

	{"container_blkio_device_usage_total", "bytes read from and written to a device", counter,
		[]string{"device", "major", "minor", "operation"}, blockIO},

	{"container_processes", "processes", gauge, nil, singleValue(func(s *sample) uint64 { return s.Processes })},
	{"container_threads", "threads", gauge, nil, singleValue(func(s *sample) uint64 { return s.PIDs })},
	{"container_threads_max", "maximum number of threads; 0: unlimited", gauge, nil,
		singleValue(func(s *sample) uint64 { return s.MaxPIDs })},
	{"container_file_descriptors", "open files", gauge, nil, openFiles(func(f process.Files) uint64 { return f.Descriptors })},
	{"container_sockets", "open sockets", gauge, nil, openFiles(func(f process.Files) uint64 { return f.Sockets })},

	{"container_last_seen", "time of this reading, in seconds since 1970", gauge, nil,
		singleValue(func(s *sample) uint64 { return uint64(s.At.Unix()) })},
	{"container_start_time_seconds", "start time of the container, in seconds since 1970", gauge, nil,
		singleValue(func(s *sample) uint64 { return uint64(s.c.GetStartedAt() / int64(time.Second)) })},
	{"container_spec_cpu_period", "period of the CPU limit, in microseconds", gauge, nil,
		readLimit((*api.LinuxContainerResources).GetCpuPeriod)},
	{"container_spec_cpu_shares", "CPU shares (relative weight)", gauge, nil,
		readLimit((*api.LinuxContainerResources).GetCpuShares)},
	{"container_spec_memory_limit_bytes", "memory limit; 0: unlimited", gauge, nil,
		readLimit((*api.LinuxContainerResources).GetMemoryLimitInBytes)},
	{"container_spec_memory_swap_limit_bytes", "limit of memory and swap; 0: unlimited", gauge, nil,
		readLimit((*api.LinuxContainerResources).GetMemorySwapLimitInBytes)},
}

var sandboxMetrics = []metric{
	{"container_network_receive_bytes_total", "bytes received", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.Received })},
	{"container_network_receive_packets_total", "packets received", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.PacketsIn })},
	{"container_network_receive_errors_total", "errors while receiving", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.ErrorsIn })},
	{"container_network_receive_packets_dropped_total", "packets dropped while receiving", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.DropsIn })},
	{"container_network_transmit_bytes_total", "bytes sent", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.Sent })},
	{"container_network_transmit_packets_total", "packets sent", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.Out })},
	{"container_network_transmit_errors_total", "errors while sending", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.ErrsOut })},
	{"container_network_transmit_packets_dropped_total", "packets dropped while sending", counter, []string{"interface"},
		readInterfaces(func(t process.Interface) uint64 { return t.DropsOut })},
}

// ListMetricDescriptors describes the metrics that ListPodSandboxMetrics returns.
func (r *Runtime) ListMetricDescriptors(context.Context, *api.ListMetricDescriptorsRequest) (*api.ListMetricDescriptorsResponse, error) {
	out := &api.ListMetricDescriptorsResponse{}
	for _, m := range slices.Concat(containerMetrics, sandboxMetrics) {
		out.Descriptors = append(out.Descriptors, &api.MetricDescriptor{
			Name: m.name, Help: m.help, LabelKeys: slices.Concat(podLabels, m.labels),
		})
	}
	return out, nil
}

// ListPodSandboxMetrics returns the metrics of every ready sandbox and of its running containers.
// They are measured during the call. The timestamps are zero.
func (r *Runtime) ListPodSandboxMetrics(
	ctx context.Context, _ *api.ListPodSandboxMetricsRequest,
) (*api.ListPodSandboxMetricsResponse, error) {
	ready := &api.PodSandboxFilter{State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}}
	list, err := r.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: ready})
	if err != nil {
		return nil, err
	}
	out, names := &api.ListPodSandboxMetricsResponse{}, map[string]string{}
	for _, i := range list.Items {
		s, err := r.findSandbox(i.Id)
		if err != nil {
			continue // another call has removed it
		}
		m, err := r.podMetrics(ctx, s, names)
		if err != nil {
			return nil, err
		}
		out.PodMetrics = append(out.PodMetrics, m)
	}
	return out, nil
}

func (r *Runtime) podMetrics(ctx context.Context, s *sandbox, names map[string]string) (*api.PodSandboxMetrics, error) {
	out := &api.PodSandboxMetrics{PodSandboxId: s.rec.ID}
	pod := s.config.GetMetadata()
	anyPID := 0
	for _, c := range r.containersOf(s.rec.ID) {
		r.mu.Lock()
		pid := c.pid
		r.mu.Unlock()
		if pid <= 0 {
			continue
		}
		p, err := r.sampleOf(ctx, s, c)
		if err != nil {
			if err := r.logOmitted(ctx, c, fmt.Errorf("read metrics: %w", err)); err != nil {
				return nil, err
			}
			continue
		}
		anyPID, p.names = pid, names
		image := cmp.Or(p.c.GetImage().GetUserSpecifiedImage(), p.c.GetImage().GetImage())
		labels := []string{p.c.GetMetadata().GetName(), r.cgroupDir(s, c.rec.ID), image, c.rec.ID, pod.GetNamespace(), pod.GetName()}
		out.ContainerMetrics = append(out.ContainerMetrics, &api.ContainerMetrics{
			ContainerId: c.rec.ID, Metrics: readAll(containerMetrics, labels, p),
		})
	}
	if !s.hostNetwork() && anyPID > 0 {
		labels := []string{"", path.Dir(r.cgroupDir(s, s.rec.ID)), "", s.rec.ID, pod.GetNamespace(), pod.GetName()}
		out.Metrics = readAll(sandboxMetrics, labels, &sample{network: process.Reader{}.Network(anyPID)})
	}
	return out, nil
}

func (r *Runtime) sampleOf(ctx context.Context, s *sandbox, c *container) (*sample, error) {
	d, err := r.cgroups.ReadDetails(r.cgroupDir(s, c.rec.ID))
	if err != nil {
		return nil, err
	}
	p := &sample{Details: d, c: r.containerStatus(c)}
	if p.disk, err = r.writableLayerUsage(ctx, c); err != nil {
		return nil, err
	}
	pids, err := r.cgroups.Processes(r.cgroupDir(s, c.rec.ID))
	if err != nil {
		return nil, err
	}
	p.open = process.Reader{}.Open(pids)
	return p, unix.Statfs(r.dirs.containers, &p.free)
}

func readAll(table []metric, labels []string, p *sample) (out []*api.Metric) {
	for _, m := range table {
		for _, v := range m.read(p) {
			out = append(out, &api.Metric{Name: m.name, MetricType: m.kind, LabelValues: slices.Concat(labels, v.labels), Value: u64(v.n)})
		}
	}
	return out
}
