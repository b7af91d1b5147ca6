package exposition

import (
	"strings"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// ifLimited returns a function that writes a metric only for a cgroup with a CPU limit. It is used for figures about throttling, because
// other cgroups are never throttled.
func ifLimited(write func(*emitter)) func(*emitter) {
	return func(e *emitter) {
		if e.s.Quota > 0 {
			write(e)
		}
	}
}

// ifOpenFiles returns a function that writes a metric only for a container whose number of open files is known.
func ifOpenFiles(write func(*emitter)) func(*emitter) {
	return func(e *emitter) {
		if e.s.Kind == sample.Container && e.s.Open.Known {
			write(e)
		}
	}
}

// reclaimFigure returns a function that writes a metric of cgroup v2 only.
func reclaimFigure(get func(*cgroup.Details) uint64) func(*emitter) {
	return func(e *emitter) {
		if e.s.Reclaim.Counted {
			e.add(float64(get(e.s.Details)))
		}
	}
}

// writeTransfers returns a function that writes a line for each device, with the I/O of the cgroup. For the machine, it uses the counters
// of the devices.
func writeTransfers(get func(cgroup.IO) uint64, all func(disk.Device) uint64) func(*emitter) {
	return func(e *emitter) {
		if e.s.Kind == sample.Root {
			machineDevices(func(d disk.Device) float64 { return float64(all(d)) })(e)
			return
		}
		for _, i := range e.s.IO {
			e.add(float64(get(i)), "device", e.device(i.Device))
		}
	}
}

func writeBlkio(e *emitter) {
	for _, i := range e.s.IO {
		name := e.device(i.Device)
		major, minor, _ := strings.Cut(i.Device, ":")
		e.add(float64(i.ReadBytes), "device", name, "major", major, "minor", minor, "operation", "Read")
		e.add(float64(i.WriteBytes), "device", name, "major", major, "minor", minor, "operation", "Write")
	}
}

func writePressure(get func(cgroup.Pressures) *cgroup.Pressure, full bool) func(*emitter) {
	return func(e *emitter) {
		if p := get(e.s.Pressure); p != nil && full {
			e.addTime(p.Full.Total)
		} else if p != nil {
			e.addTime(p.Some.Total)
		}
	}
}

func pressureCPU(p cgroup.Pressures) *cgroup.Pressure    { return p.CPU }
func pressureMemory(p cgroup.Pressures) *cgroup.Pressure { return p.Memory }
func pressureIO(p cgroup.Pressures) *cgroup.Pressure     { return p.IO }

const sectorBytes = 512

var (
	onDevice    = []string{"device"}
	onInterface = []string{"interface"}
)

// containerFamilies contains the metrics of Subjects. They have the same names, types and labels as in cAdvisor. See
// https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md.
var containerFamilies = []family{
	{"container_start_time_seconds", "start time, in seconds since 1970", Gauge, true, nil, func(e *emitter) {
		t := e.s.Started
		if t.IsZero() {
			t = e.s.Created
		}
		e.add(float64(t.Unix()))
	}},
	{"container_creation_time_seconds", "creation time of the cgroup, in seconds since 1970", Gauge, true, nil,
		subjectValue(func(s *Subject) uint64 { return uint64(s.Created.Unix()) })},
	{"container_last_seen", "time of the last reading, in seconds since 1970", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return uint64(s.At.Unix()) })},
	{"container_spec_cpu_period", "period of the CPU limit, in microseconds", Gauge, true, nil, func(e *emitter) {
		if e.s.Period > 0 {
			e.add(float64(e.s.Period))
		}
	}},
	{"container_spec_cpu_quota", "CPU time allowed in each period, in microseconds", Gauge, true, nil,
		ifLimited(subjectValue(func(s *Subject) uint64 { return s.Quota }))},
	{"container_spec_cpu_shares", "relative weight of CPU time", Gauge, true, nil, func(e *emitter) {
		if e.s.Shares > 0 {
			e.add(float64(e.s.Shares))
		}
	}},
	{"container_spec_memory_limit_bytes", "memory limit; 0: none", Gauge, true, nil,
		subjectValue(func(s *Subject) uint64 { return s.Limit })},
	{"container_spec_memory_swap_limit_bytes", "limit of swap; with cgroup v1, of memory and swap together; 0: none", Gauge,
		true, nil, subjectValue(func(s *Subject) uint64 { return s.SwapLimit })},
	{"container_spec_memory_reservation_limit_bytes", "memory that is protected when memory is scarce; 0: none", Gauge,
		true, nil, subjectValue(func(s *Subject) uint64 { return s.Reservation })},

	{"container_cpu_usage_seconds_total", "CPU time used, in seconds of one core", Counter, false, []string{"cpu"},
		func(e *emitter) { e.addTime(e.s.CPU, "cpu", "total") }},
	{"container_cpu_user_seconds_total", "CPU time used in user mode, in seconds of one core", Counter, false, nil,
		writeSeconds(func(s *Subject) time.Duration { return s.User })},
	{"container_cpu_system_seconds_total", "CPU time used in kernel mode, in seconds of one core", Counter, false, nil,
		writeSeconds(func(s *Subject) time.Duration { return s.System })},
	{"container_cpu_cfs_periods_total", "periods with a CPU limit", Counter, false, nil,
		ifLimited(subjectValue(func(s *Subject) uint64 { return s.Periods }))},
	{"container_cpu_cfs_throttled_periods_total", "periods in which the CPU limit was exhausted", Counter, false, nil,
		ifLimited(subjectValue(func(s *Subject) uint64 { return s.Throttled }))},
	{"container_cpu_cfs_throttled_seconds_total", "time for which processes were throttled", Counter, false, nil,
		ifLimited(writeSeconds(func(s *Subject) time.Duration { return s.ThrottledTime }))},
	{"container_cpu_cfs_burst_periods_total", "periods with more CPU time than the limit", Counter, false, nil,
		ifLimited(subjectValue(func(s *Subject) uint64 { return s.Bursts }))},
	{"container_cpu_cfs_burst_seconds_total", "CPU time used beyond the limit", Counter, false, nil,
		ifLimited(writeSeconds(func(s *Subject) time.Duration { return s.BurstTime }))},

	{"container_memory_usage_bytes", "memory in use, including the page cache", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.Memory })},
	{"container_memory_working_set_bytes", "working set: memory in use without inactive page cache", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.WorkingSet })},
	{"container_memory_max_usage_bytes", "maximum memory that was in use", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.Peak })},
	{"container_memory_rss", "anonymous memory", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.RSS })},
	{"container_memory_cache", "page cache", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.Cache })},
	{"container_memory_mapped_file", "mapped page cache", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.Mapped })},
	{"container_memory_kernel_usage", "kernel memory", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.Kernel })},
	{"container_memory_swap", "swapped memory", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.Swap })},
	{"container_memory_total_active_file_bytes", "recently used page cache", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.ActiveFile })},
	{"container_memory_total_inactive_file_bytes", "page cache that was not used recently", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.InactiveFile })},
	{"container_memory_failcnt", "how often the memory limit was reached", Counter, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.LimitHits })},
	{"container_memory_failures_total", "page faults", Counter, false, []string{"failure_type", "scope"}, func(e *emitter) {
		e.add(float64(e.s.OwnFaults), "failure_type", "pgfault", "scope", "container")
		e.add(float64(e.s.OwnMajor), "failure_type", "pgmajfault", "scope", "container")
		e.add(float64(e.s.PageFaults), "failure_type", "pgfault", "scope", "hierarchy")
		e.add(float64(e.s.MajorFault), "failure_type", "pgmajfault", "scope", "hierarchy")
	}},
	{"container_oom_events_total", "processes that the kernel killed at the memory limit", Counter, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.OOMKills })},

	{"container_memory_events_high_total", "how often processes were throttled at memory.high", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.Throttles })},
	{"container_memory_events_max_total", "how often the memory limit was reached", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.LimitHits })},
	{"container_memory_file_dirty_bytes", "modified page cache that is not written yet", Gauge, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.Dirty })},
	{"container_memory_file_writeback_bytes", "page cache that is being written", Gauge, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.Writeback })},
	{"container_memory_pgscan_total", "pages that were inspected to reclaim memory", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.Scanned })},
	{"container_memory_pgsteal_total", "pages that were reclaimed", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.Stolen })},
	{"container_memory_workingset_refault_anon_total", "reclaimed anonymous pages that were needed again", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.RefaultedAnon })},
	{"container_memory_workingset_refault_file_total", "reclaimed pages of files that were needed again", Counter, false, nil,
		reclaimFigure(func(d *cgroup.Details) uint64 { return d.Reclaim.RefaultedFile })},

	{"container_fs_usage_bytes", "bytes in its own files", Gauge, false, onDevice, writeDisks(func(d Disk) uint64 { return d.Used })},
	{"container_fs_limit_bytes", "size of the file system in bytes", Gauge, false, onDevice,
		writeDisks(func(d Disk) uint64 { return d.Limit })},
	{"container_fs_inodes_total", "inodes of the file system", Gauge, false, onDevice, writeDisks(func(d Disk) uint64 { return d.Inodes })},
	{"container_fs_inodes_free", "free inodes of the file system", Gauge, false, onDevice,
		writeDisks(func(d Disk) uint64 { return d.InodesFree })},
	{"container_fs_reads_bytes_total", "bytes read from a device", Counter, false, onDevice,
		writeTransfers(func(i cgroup.IO) uint64 { return i.ReadBytes }, func(d disk.Device) uint64 { return d.SectorsRead * sectorBytes })},
	{"container_fs_writes_bytes_total", "bytes written to a device", Counter, false, onDevice,
		writeTransfers(func(i cgroup.IO) uint64 { return i.WriteBytes },
			func(d disk.Device) uint64 { return d.SectorsWritten * sectorBytes })},
	{"container_fs_reads_total", "reads from a device", Counter, false, onDevice,
		writeTransfers(func(i cgroup.IO) uint64 { return i.Reads }, func(d disk.Device) uint64 { return d.Reads })},
	{"container_fs_writes_total", "writes to a device", Counter, false, onDevice,
		writeTransfers(func(i cgroup.IO) uint64 { return i.Writes }, func(d disk.Device) uint64 { return d.Writes })},
	{"container_fs_sector_reads_total", "sectors read from a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return float64(d.SectorsRead) })},
	{"container_fs_sector_writes_total", "sectors written to a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return float64(d.SectorsWritten) })},
	{"container_fs_reads_merged_total", "merged reads of a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return float64(d.ReadsMerged) })},
	{"container_fs_writes_merged_total", "merged writes of a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return float64(d.WritesMerged) })},
	{"container_fs_read_seconds_total", "time spent reading from a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return d.ReadTime.Seconds() })},
	{"container_fs_write_seconds_total", "time spent writing to a device of the machine", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return d.WriteTime.Seconds() })},
	{"container_fs_io_current", "requests in progress on a device of the machine", Gauge, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return float64(d.Current) })},
	{"container_fs_io_time_seconds_total", "time for which a device of the machine was busy", Counter, false, onDevice,
		machineDevices(func(d disk.Device) float64 { return d.BusyTime.Seconds() })},
	{"container_fs_io_time_weighted_seconds_total", "total waiting time of requests to a device of the machine", Counter,
		false, onDevice, machineDevices(func(d disk.Device) float64 { return d.QueueTime.Seconds() })},
	{"container_blkio_device_usage_total", "bytes read from and written to a device", Counter, false, []string{"device",
		"major", "minor", "operation"}, writeBlkio},

	{"container_network_receive_bytes_total", "bytes received", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.Received })},
	{"container_network_receive_packets_total", "packets received", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.PacketsIn })},
	{"container_network_receive_errors_total", "errors while receiving", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.ErrorsIn })},
	{"container_network_receive_packets_dropped_total", "packets dropped while receiving", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.DropsIn })},
	{"container_network_transmit_bytes_total", "bytes sent", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.Sent })},
	{"container_network_transmit_packets_total", "packets sent", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.Out })},
	{"container_network_transmit_errors_total", "errors while sending", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.ErrsOut })},
	{"container_network_transmit_packets_dropped_total", "packets dropped while sending", Counter, false, onInterface,
		writeNetworks(func(i process.Interface) uint64 { return i.DropsOut })},

	{"container_processes", "processes", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.Processes })},
	{"container_threads", "threads", Gauge, false, nil, subjectValue(func(s *Subject) uint64 { return s.PIDs })},
	{"container_threads_max", "maximum number of threads; 0: no limit", Gauge, false, nil,
		subjectValue(func(s *Subject) uint64 { return s.MaxPIDs })},
	{"container_file_descriptors",
		"open files", Gauge, false, nil, ifOpenFiles(subjectValue(func(s *Subject) uint64 { return s.Open.Descriptors }))},
	{"container_sockets", "open sockets", Gauge, false, nil, ifOpenFiles(subjectValue(func(s *Subject) uint64 { return s.Open.Sockets }))},
	{"container_ulimits_soft", "limit of open files of the first process", Gauge, false, []string{"ulimit"}, func(e *emitter) {
		if e.s.OpenLimit > 0 {
			e.add(float64(e.s.OpenLimit), "ulimit", "max_open_files")
		}
	}},

	{"container_pressure_cpu_waiting_seconds_total", "time for which some processes waited for a CPU", Counter, false, nil,
		writePressure(pressureCPU, false)},
	{"container_pressure_cpu_stalled_seconds_total", "time for which all processes waited for a CPU", Counter, false, nil,
		writePressure(pressureCPU, true)},
	{"container_pressure_memory_waiting_seconds_total", "time for which some processes waited for memory", Counter, false,
		nil, writePressure(pressureMemory, false)},
	{"container_pressure_memory_stalled_seconds_total", "time for which all processes waited for memory", Counter, false,
		nil, writePressure(pressureMemory, true)},
	{"container_pressure_io_waiting_seconds_total", "time for which some processes waited for a device", Counter, false,
		nil, writePressure(pressureIO, false)},
	{"container_pressure_io_stalled_seconds_total", "time for which all processes waited for a device", Counter, false, nil,
		writePressure(pressureIO, true)},
}
