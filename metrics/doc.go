// Package metrics contains no code. The packages below it measure the machine, cgroups and processes. They have no side effects and do not
// use the pods' API objects.
//
//	metrics/host     the machine: identity, memory, CPU, file systems, load, sensors
//	metrics/cgroup   a cgroup: CPU, memory, pids, I/O, pressure; all callers share one reading
//	metrics/process  processes: network traffic, open files; the agent's own figures
//	metrics/disk     the disk usage of directories; the counters of block devices
//	metrics/headroom     the free amounts of the resources that pods can exhaust
//	metrics/sample   all cgroups of pods at one time, read with these packages
//	metrics/exposition  the pages that Prometheus scrapes
//	metrics/kernfile reads files in proc and cgroupfs for the other packages
//
// All figures are read on demand. Callers within a short time share one reading: the Summary API, the
// pages for Prometheus, the CRI, eviction thresholds and islet top. The packages never poll. A cgroup,
// process or file may disappear while it is read, for example because a container ends. This is not an
// error.
package metrics
