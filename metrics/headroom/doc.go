// Package headroom reads the free amounts of the resources that pods can exhaust: memory, disks, inodes and process IDs. A
// reading needs only a few files and system calls for any number of pods, so that thresholds can be checked often.
//
//	/proc/meminfo   cgroup of all pods   statfs of the disks   /proc/loadavg
//	          \             |                 /                   /
//	           Reader.Now --> Room: the free and the total amount of each resource
//
// The package reads files only during a call and caches no results.
package headroom
