// Package mounts unmounts file systems below a directory of islet, and removes directories. It does
// so without damage to the mounts and files of the host.
//
// There are two difficulties. A bind mount of a shared mount is in the peer group of the original.
// If something is unmounted below the copy, the kernel also unmounts it below the original. And a
// removal that enters a mount would remove files that do not belong to islet. The solutions are
//
//	Detach, DetachBelow   make the mounts private first, then unmount them
//	RemoveAll, RemoveAt   never cross a mount point: the kernel refuses to (openat2 with
//	                      RESOLVE_NO_XDEV, which also stops at bind mounts of the same
//	                      file system), and a mount point cannot be unlinked
//
// The agent and the runtime must remove directory trees only with this package.
//
// Answers tests a file system whose server may not respond. If so, only the caller is blocked.
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
package mounts
