// Package mounts unmounts file systems below islet's directories and removes directories, without
// damage to the mounts and files of the host.
//
// There are two risks. A bind mount of a shared mount is in the peer group of the original: if a mount below the copy is unmounted, the
// kernel also unmounts the same mount below the original. The second risk is that the removal of a directory with a mount in it would
// remove files of the host. The solutions are
//
//	Detach, DetachBelow   make the mounts private first, then unmount them
//	RemoveAll, RemoveAt,  never cross a mount point: the kernel refuses to (openat2 with
//	RemoveUntil           RESOLVE_NO_XDEV, which also stops at bind mounts of the same
//	                      file system), and a mount point cannot be unlinked
//
// The agent and the runtime must remove directory trees only with this package.
//
// CheckResponding checks whether a file system responds. If it does not, only the caller is blocked.
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
package mounts
