// Package logs reads a container's log in CRI format, including rotated files, once or
// continuously.
//
//	<attempt>.log.<time>.gz  <attempt>.log.<time>  <attempt>.log     oldest to newest
//	            \___________________|__________________/
//	                    set --> scanner --> printer --> writer
//	                     ^ inotify wakes it at the end of a file
//
// A position in the log is an open file. The kernel reports the file's current name, so a rotation
// at any time neither loses nor repeats a line. Names of rotated files sort by age.
//
// A reader that is slower than the log's rotation gets an error. The directory's watch (inotify)
// records the names of removed files; if one between the last file and the next was removed, Read
// returns ErrMissed. Keeping all files open instead would let a stalled reader hold any number of
// deleted files on the disk.
//
// Format: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
package logs
