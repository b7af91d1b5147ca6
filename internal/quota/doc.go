// Package quota limits the size of directories by project quotas. The file systems xfs and ext4
// support project quotas if they are mounted with the option prjquota. On other file systems the
// functions report that the limit is not enforced.
//
//	directory --project ID, inherited by everything below--> file system --EDQUOT--> a writer over the limit
//
// The project ID is stored in the directory's inode, so it survives restarts and updates, and the
// package stores no other state. As with a kubelet's quotas, the limit is not a security boundary
// against root. A process that is root outside a user namespace can change the project ID of its
// files. The kernel does not enforce quotas for processes with CAP_SYS_RESOURCE, such as processes
// of privileged containers.
//
// https://www.kernel.org/doc/html/latest/filesystems/quota.html
package quota
