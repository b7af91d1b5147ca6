// Package oom reports when the machine runs out of memory and which process the kernel kills. It does not report
// containers that reach their own limit. The containers' status and container_oom_events_total do that.
//
//	/dev/kmsg --blocks until the kernel says something--> Parse --> event SystemOOM, counter
//	                                                            '-> Killed: MemoryPressure
//
// One goroutine waits in the read and occupies no thread. A file in the run directory contains the number of the next
// record to handle. It is written at the first start after a boot and at each event. If the agent itself is killed,
// it can therefore report the kill after its restart. The file contains a number instead of a time because programs
// cannot read the clock of the records.
//
// Only the kernel writes records of facility 0; programs that write to /dev/kmsg get another
// facility, so they cannot fake a kill.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
package oom
