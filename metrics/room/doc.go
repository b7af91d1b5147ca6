// Package room reads how much the machine has left of what pods may use up: memory, disks,
// inodes and processes. A look takes a few files and system calls, whatever runs, so that
// thresholds can be looked at often.
//
//	/proc/meminfo   cgroup of all pods   statfs of the disks   /proc/loadavg
//	          \             |                 /                   /
//	           Reader.Now --> Room: of each what is free, of how much
//
// Nothing is read unless somebody asks, and nothing is kept.
package room
