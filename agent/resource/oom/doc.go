// Package oom reports that the machine has run out of memory, and which process the kernel has killed. It does not
// report containers that reach their own limit. These appear in the containers' status and in
// container_oom_events_total.
//
//	/dev/kmsg --blocks until the kernel says something--> Parse --> event SystemOOM, counter
//	                                                            '-> Killed: MemoryPressure
//
// One goroutine waits in Read without occupying a thread. A file in the run directory contains the number of the next
// record to handle. It is written at the first start after a boot and at each event. So if the kernel kills the agent,
// the restarted agent can report this kill. The file contains a record number instead of a time because programs cannot
// read the clock that the records use.
//
// Only the kernel can write records of facility 0. Records that programs write to /dev/kmsg have another facility, so
// they cannot fake a kill.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
package oom
