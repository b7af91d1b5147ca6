// Package rotate rotates container logs for a remote runtime, which writes logs
// and reopens them on request, but does not rotate them. It also limits the total size of each
// pod's rotated logs.
//
//	Run, every containerLogMonitorInterval --> each running container's log
//	   too large: rename to <log>.<time> --> Reopen --> the runtime writes <log> again
//	   missing:   Reopen (an agent died between the two steps)
//	   first:     compress all <log>.<time> to .gz, delete the oldest beyond
//	              containerLogMaxFiles
//
// Pods may mount the log directory, so files are opened there only if they are regular files, and symbolic links are
// not followed.
//
// https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation
package rotate
