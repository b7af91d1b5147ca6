// Package quota limits the size of directories by project quotas. xfs and ext4 support them when
// they are mounted with prjquota. On other file systems its functions report that the limit is not
// enforced.
//
//	directory --project ID, inherited by everything below--> file system --EDQUOT--> a writer over the limit
//
// The project ID is stored in the directory's inode, so no other state is needed: it survives
// restarts and updates. The limit is not a security boundary against root: a process that is root
// on the host, outside a user namespace, can change the project ID of its files, as with a
// kubelet's quotas, and the kernel does not enforce quotas for CAP_SYS_RESOURCE, which privileged
// containers have.
//
// https://www.kernel.org/doc/html/latest/filesystems/quota.html
package quota
