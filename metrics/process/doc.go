// Package process reads figures of processes that cgroups do not provide: the traffic of the network namespace, the number of open files,
// and the number of written bytes. It also reads the figures of islet's own process, for the process_* metrics.
//
//	Reader --/proc/PID--> Interface, Files, bytes written
//	Links --netlink--> traffic counters of many interfaces at once
//	ReadSelf --/proc/self--> Self
package process
