// Package rotate keeps the logs of containers small whose runtime does not: one behind a
// CRI socket writes a log and opens it anew when it is asked to, but decides nothing.
//
//	Run, every containerLogMonitorInterval --> each running container's log
//	   too large: rename to <log>.<time> --> Reopen --> the runtime writes <log> again
//	   not there: Reopen (an agent died between the two)
//	   before: all but the newest of <log>.<time> become .gz, the oldest beyond
//	           containerLogMaxFiles go
//
// Pods may mount the directory of logs, so nothing but regular files is opened there, and
// no link followed.
//
// https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation
package rotate
