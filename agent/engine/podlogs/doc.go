// Package podlogs limits the total size of each pod's rotated logs, with every runtime. It also rotates the container logs of a remote
// runtime, which writes logs and reopens them on request, but does not rotate them. The shims rotate the logs of islet's own containers
// (runtime/shim/crilog).
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
package podlogs
