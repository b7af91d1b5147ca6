// Package oom reports when the machine runs out of memory and which process the kernel kills. It
// does not report containers that reach their own limit: their status and
// container_oom_events_total do.
//
//	/dev/kmsg --blocks until the kernel says something--> Parse --> event SystemOOM, counter
//	                                                            '-> Killed: MemoryPressure
//
// One goroutine waits in the read and occupies no thread. The file in the run directory holds the
// number of the last handled record; it is written at the first start after a boot and at each
// event. So an agent that was itself killed reports earlier kills after its restart. It holds a
// number because the clock of records is not readable by programs.
//
// Only the kernel writes records of facility 0; programs that write to /dev/kmsg get another
// facility, so they cannot fake a kill.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
package oom
