// Package oom tells when the whole machine ran out of memory, and whom the kernel killed for
// it. Containers that reach their own limit are not its business: their status and
// container_oom_events_total tell of them.
//
//	/dev/kmsg --blocks until the kernel says something--> Parse --> event SystemOOM, counter
//	                                                            '-> Killed: MemoryPressure
//
// One goroutine sleeps in the read and uses no thread. An agent that was killed itself tells
// after its restart what happened meanwhile: the file in the run directory, written when the
// agent starts first after a boot and with each event, has the number of the last record that
// was dealt with. Numbers, for the times of records are by a clock that no program can read.
//
// The kernel alone writes records of facility 0; what programs write to /dev/kmsg gets
// another one, so none can make up a victim.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior
package oom
