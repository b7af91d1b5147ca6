// Package untrusted opens files that a pod, an image or another program on the
// host may have put in place. What such a file says is a claim, and so is what it
// is: it may be a FIFO that nobody writes to, a device that acts when it is
// opened, a symlink to a file of the host, or a terabyte of nothing.
//
//	root (trusted) + name (a claim) --> walk, a component at a time --> a regular file, or an error
//
// Each component is opened relative to its parent, without following it and
// without opening it for I/O; only what is a regular file is then opened again for
// reading or writing. So nothing blocks, no device notices, and swapping a
// component for a symlink meanwhile changes nothing.
//
//   - Open, OpenFile, ReadFile: below root, and no symlink at all. For what islet
//     itself has laid out and a pod can write to: logs, volumes, sandbox files.
//   - OpenDir: the same, a directory, in which files are then renamed and removed by
//     its descriptor.
//   - OpenInRoot, ReadInRoot: symlinks are followed as a process sees them whose
//     root is root (as openat2's RESOLVE_IN_ROOT has it). For files of an image.
//
// A regular file on a network file system or on FUSE may still block.
package untrusted
