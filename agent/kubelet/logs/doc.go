// Package logs reads a container's log as the CRI defines it, across its
// rotations, once or while it grows.
//
//	<attempt>.log.<time>.gz  <attempt>.log.<time>  <attempt>.log     oldest to newest
//	            \___________________|__________________/
//	                    set --> scanner --> printer --> writer
//	                     ^ inotify wakes it at the end of a file
//
// A position in the log is an open file and what its name has become since it
// was opened (the kernel knows), so a rotation between any two steps neither
// loses nor repeats a line. Names of rotated files sort by age.
//
// A reader who is slower than the log's retention is told so. The directory's watch (inotify)
// keeps the names of the files that are removed while nobody looks; one between the file that was
// read and the next ends the reading with ErrMissed. The reader cannot keep all files open
// instead: one that has stopped would then keep any number of removed files on the disk.
//
// Format: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
package logs
