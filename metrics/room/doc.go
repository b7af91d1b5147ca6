// Package room reads the free amounts of the resources that pods can exhaust: memory, disks, inodes and process IDs. A
// reading needs only a few files and system calls, whatever the number of pods, so that thresholds can be checked
// often.
//
//	/proc/meminfo   cgroup of all pods   statfs of the disks   /proc/loadavg
//	          \             |                 /                   /
//	           Reader.Now --> Room: for each, the free and the total amount
//
// Nothing is read without a call, and nothing is cached.
package room
