// Package eviction protects the node from pods that exhaust memory, disk or process IDs. It evicts pods in the order
// that Kubernetes documents, before the kernel kills any of their processes.
//
//	kernel: pressure stall, cgroup thresholds --wake--.     KubeletConfiguration
//	a timer, 10 s to 1 min --------------------------.|         | Parse
//	                                                 vv         v
//	metrics/headroom --Now--> Observations --------> State.Evaluate <-- Thresholds
//	agent/resource/oom: the kernel killed --OutOfMemory-------^
//	                                                 |
//	        .------- conditions -------- Verdict ----+---- the threshold to act on
//	        v                                                     | for a disk, outside the loop:
//	 Node, admission, taints                      Reclaimer: dead containers, unused images
//	                                                              | not enough: measure again
//	 usage --pods' figures--> Rank --first that is not critical--> Pods.Evict
//	       --limited pods' disks--> FindExceeded ----------------------^     |
//	                                                                     v
//	      the eviction is stored ------> plan: stop, remove containers --> Failed, Evicted
//
// The decisions are pure functions: thresholds (threshold.go), the time for which each has been met (observations.go), the
// order of pods (rank.go), the limits of a pod (storage_limits.go), messages (message.go). Only Run blocks. Under pressure it
// evicts one pod, waits until the pod has ended, and measures again. An eviction is stored before the pod is stopped,
// in the same way as a preemption for a critical pod. A restarted agent completes it.
//
// Memory is measured when the kernel reports a stall, or reports that a cgroup's use has reached a threshold. A
// measurement reads two short files. For other resources the kernel has no such events. They are measured at an interval
// of at least 10 s, which becomes shorter when less of the resource is free. Reclaiming disk space and counting files may
// take minutes, so they run in a separate goroutine while the loop reacts to memory events (reclaim.go).
//
// Two things differ from a kubelet. Under disk pressure, a pod is evicted only if its eviction would free a fair
// part of the missing space. So no pod is evicted if other files fill the disk. A static pod without a critical
// priority can be evicted as well, because on a node without a control plane nothing else would stop it. Static pods
// are evicted after all pods from the API server, and only if they use a fair part of the missing resource. They are
// admitted again some time after the pressure has ended.
//
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package eviction
