// Package metrics is the parent of the packages for measurements. These packages have no side effects and
// know nothing about pods.
//
//	metrics/host     the machine: identity, memory, CPU, file systems, load, sensors
//	metrics/cgroup   a cgroup: CPU, memory, pids, I/O, pressure; one reading for all callers
//	metrics/process  processes: network traffic, open files; the agent's own figures
//	metrics/disk     the size of directories; the counters of block devices
//	metrics/sample   all cgroups of pods at one time, from the above
//	metrics/exposition  the pages that Prometheus scrapes
//	metrics/kernfile files in proc and cgroupfs, read by some of the above
//
// Everything is read on demand. Within a short time, one reading serves all callers: the Summary API, the
// pages for Prometheus, the CRI, eviction thresholds and islet top. Nothing here polls. It is no error if
// something disappears while it is read, such as a container that ends.
package metrics
