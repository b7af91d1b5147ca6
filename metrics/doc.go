// Package metrics and the rooms below it measure; they act on nothing and know
// no pods.
//
//	metrics/host    the machine: identity, memory, CPU, disks, load
//	metrics/cgroup  a cgroup: CPU, memory, pids, I/O
//
// Everything is read when asked for. Nothing here polls.
package metrics
