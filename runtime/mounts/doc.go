// Package mounts takes down what is mounted below a directory of islet's, and
// removes directories, without harm to what is the host's.
//
// Two things make that hard. A mount that was bound from a shared mount is in its
// peer group: when something below the copy is unmounted, the kernel unmounts it
// below the original too. And a removal that walks into a mount removes files of
// someone else. So:
//
//	Detach, DetachBelow   cut the mounts off from their peers first, then unmount
//	RemoveAll, RemoveAt   never pass a mount point: the kernel refuses (openat2 with
//	                      RESOLVE_NO_XDEV, which also stops at bind mounts of the same
//	                      file system), and nothing mounted can be unlinked
//
// This is the only place of the agent and the runtime that removes trees.
//
// Answers asks a file system whose server may be gone, such that nothing is held up but
// the caller.
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
package mounts
