// Package mounts unmounts file systems below a directory of islet, and removes directories, without
// damage to the host's mounts and files.
//
// Two things make that hard. A mount that was bound from a shared mount is in its peer group: when
// something below the copy is unmounted, the kernel also unmounts it below the original. And a
// removal that walks into a mount would remove someone else's files. So:
//
//	Detach, DetachBelow   make the mounts private first, then unmount them
//	RemoveAll, RemoveAt   never cross a mount point: the kernel refuses to (openat2 with
//	                      RESOLVE_NO_XDEV, which also stops at bind mounts of the same
//	                      file system), and a mount point cannot be unlinked
//
// The agent and the runtime remove directory trees only through this package.
//
// Answers probes a file system whose server may be gone, in a way that blocks only the caller.
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
package mounts
