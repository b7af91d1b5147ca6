// Package eviction protects the node from pods that exhaust memory, disk or process IDs. It evicts
// pods in the documented order of Kubernetes before the kernel kills any.
//
//	kernel: pressure stall, cgroup thresholds --wake--.     KubeletConfiguration
//	a timer, 10 s to 1 min --------------------------.|         | Parse
//	                                                 vv         v
//	metrics/room --Now--> Observations --------> State.Judge <-- Thresholds
//	agent/resource/oom: the kernel killed --OutOfMemory-------^
//	                                                 |
//	        .------- conditions -------- Verdict ----+---- the threshold to act on
//	        v                                                     | of a disk, beside the loop:
//	 Node, admission, taints                      Reclaimer: dead containers, unused images
//	                                                              | not enough, seen anew
//	 usage --pods' figures--> Rank --first that is not critical--> Pods.Evict
//	       --limited pods' disks--> Exceeded ----------------------^     |
//	                                                                     v
//	      the store has that it ends --> plan: stop, remove containers --> Failed, Evicted
//
// The pure parts are tables: thresholds (threshold.go), which are met since when (judge.go), the
// order of pods (rank.go), a pod's own limits (limits.go), messages (message.go). Only Run blocks.
// It evicts one pod at a time for pressure and measures again when the pod has ended. An eviction
// is stored before the pod is stopped, like a preemption for a critical pod, so a restarted agent
// completes it.
//
// Memory is measured when the kernel reports a stall or that a cgroup's use has reached a
// threshold; two short files are read then. The other resources have no such events: they are
// measured more often the less is left, at most every 10 s. Reclaiming disk space and counting
// files may take minutes; they run beside the loop, which keeps reacting to memory (reclaim.go).
//
// Differences from a kubelet: Disk pressure evicts only pods that would free a fair part of what is
// missing, so a disk that is filled by other files evicts none. A static pod without a critical
// priority may be evicted too, after all pods of the API server and only if it uses a fair part of
// what is missing; it is admitted again when the pressure has ended and some time has passed. On a
// node without a control plane nothing else could stop such a pod.
//
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package eviction
