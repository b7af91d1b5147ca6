// Package eviction defends the node against pods that use up what others need: it ends
// some, in the order that Kubernetes documents, before the kernel ends any.
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
// The pure parts are tables: thresholds (threshold.go), what is met since when (judge.go),
// the order (rank.go), limits of a pod's own (limits.go), the words (message.go). Run is
// the only one that waits. It ends one pod at a time for pressure, and looks again when
// that is gone. It ends no pod by its own hand: the verdict is stored first, as one that
// makes room for a critical pod is, so an agent that is killed meanwhile finds it.
//
// Memory is looked at when the kernel says that processes wait for some, or that the use of
// a cgroup has come to a threshold, and then only by two short files. The rest has no such
// events: it is looked at the more often the less there is, at most every 10 s. To make room on
// a disk and to count files may take minutes, in which memory is heard as ever (files.go).
//
// Where this differs from a kubelet: for want of disk only pods are ended that give back a fair
// part of what is missing; a disk that other files fill ends none. And a static pod without a critical priority may be
// evicted too, after all pods of the API server and only if it has a fair part of what is
// missing, and comes back once there is room and some time has passed. On a node that stands alone nobody else could end what eats it.
//
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package eviction
