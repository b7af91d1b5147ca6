// Package logs reads a container's log in CRI format, including its rotated files. It reads the log once, or follows it.
//
//	<attempt>.log.<time>.gz  <attempt>.log.<time>  <attempt>.log     oldest to newest
//	            \___________________|__________________/
//	               logFiles --> scanner --> printer --> writer
//	                   ^ inotify wakes it at the end of a file
//
// A reader keeps the current file open. The kernel reports the present name of an open file, so a reader neither loses nor
// repeats a line when the log is rotated. The names of rotated files sort by age.
//
// If files are removed before they are read, Read returns ErrMissed. It finds this out from a watch of the directory
// (inotify), which records the names of removed files. Read does not keep all files open for this purpose. Otherwise a
// stalled reader could keep any number of deleted files on the disk.
//
// Format: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
package logs
