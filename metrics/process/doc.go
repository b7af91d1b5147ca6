// Package process reads of processes what their cgroup does not say: the traffic of their
// network namespace, their open files and what they have written. Of this process it reads what
// every program tells a Prometheus of itself.
//
//	Reader --/proc/PID--> Interface, Files, bytes written
//	Links --netlink--> whether anything went through the interfaces of many
//	ReadSelf --/proc/self--> Self
package process
