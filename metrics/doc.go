// Package metrics and the rooms below it measure; they act on nothing and know
// no pods.
//
//	metrics/host     the machine: identity, memory, CPU, file systems, load, sensors
//	metrics/cgroup   a cgroup: CPU, memory, pids, I/O, pressure; read once for all who ask
//	metrics/process  processes: traffic of their network, open files; this one's own figures
//	metrics/disk     what lies below directories; what devices have done
//	metrics/sample   all cgroups of pods at one time, from the above
//	metrics/exposition  the pages that Prometheus scrapes
//	metrics/kernfile files that the kernel makes, read by some of the above
//
// Everything is read when asked for, and one reading serves all who ask within a short
// time: the Summary API, the pages of Prometheus, the CRI, thresholds and islet top. Nothing
// here polls. What goes while it is read, as a container that ends, is no error.
package metrics
