// Package process reads figures of processes that are not part of their cgroup: the traffic of their network
// namespace, their open files, and the bytes they have written. It also reads the figures of islet's own process for
// the process_* metrics.
//
//	Reader --/proc/PID--> Interface, Files, bytes written
//	Links --netlink--> whether there was traffic on many interfaces
//	ReadSelf --/proc/self--> Self
package process
