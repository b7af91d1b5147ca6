// Package untrusted opens files that a pod, an image or another program on the host may have
// created. Such a file may be a FIFO without a writer, a device with an effect when it is opened, a
// symlink to a file of the host, or a terabyte of zeros.
//
//	root (trusted) + name (untrusted) --> walk, a component at a time --> a regular file, or an error
//
// Each component is opened relative to its parent with O_PATH and O_NOFOLLOW. Only a regular file is then opened for
// reading or writing. So an open never blocks and never affects a device. A process that replaces a component by a
// symlink during the walk cannot redirect the walk.
//
//   - Open, OpenFile, ReadFile: below root, without following symlinks. For files that islet
//     creates and a pod can write to: logs, volumes, sandbox files.
//   - OpenDir: the same for a directory, whose files are then renamed and removed relative to
//     its descriptor.
//   - OpenInRoot, ReadInRoot: symlinks are followed as for a process with the root directory
//     root (like openat2's RESOLVE_IN_ROOT). For files of an image.
//   - OpenAcrossMounts: the same for files of a running container. The caller can check each mount
//     before it is accessed.
//   - CancelableReader: a reader that obeys a context, for files that are read to their end.
//
// A regular file on a network file system or on FUSE may still block.
package untrusted
