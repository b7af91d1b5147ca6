// Package quota keeps directories to a size by project quotas, where the file system has
// them: xfs and ext4, mounted with prjquota. Elsewhere it says that it cannot.
//
//	directory --project ID, inherited by all below--> file system --EDQUOT--> who writes too much
//
// The ID of a directory is written in its inode, so nothing is remembered here: after a
// restart, and in another release, it is found there. A program that is root on the host,
// and not in a user namespace, can give its files another ID and so leave the quota, as
// with a kubelet's; and the kernel binds nobody who has CAP_SYS_RESOURCE, which a
// privileged container has.
//
// https://www.kernel.org/doc/html/latest/filesystems/quota.html
package quota
