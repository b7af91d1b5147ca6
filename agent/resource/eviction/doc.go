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
// The decisions are pure functions: thresholds (threshold.go), how long each has been met (judge.go), the order of
// pods (rank.go), the limits of a pod (limits.go), messages (message.go). Only Run blocks. Under pressure it evicts
// one pod at a time, and measures again when the pod has ended. An eviction is stored before the pod is stopped, like
// a preemption for a critical pod, so a restarted agent completes it.
//
// Memory is measured when the kernel reports a stall, or reports that the use of a cgroup has reached a threshold.
// This reads two short files. The kernel has no such events for the other resources. Their interval becomes shorter
// when less is free, down to 10 s. Reclaiming disk space and counting files may take minutes; they run in another
// goroutine than the loop, which continues to react to memory events (reclaim.go).
//
// Differences from a kubelet: Under disk pressure, a pod is evicted only if it would free a fair part of the missing
// space. So no pod is evicted if other files fill the disk. A static pod without a critical priority can be evicted
// too, because on a node without a control plane nothing else would stop it. It is evicted after all pods from the
// API server, and only if it uses a fair part of the missing resource. It is admitted again some time after the
// pressure has ended.
//
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package eviction
