// Package userns implements user namespaces for pods with hostUsers: false (KEP-127). Such a pod has, for its whole
// life, a range of the host's user and group IDs that no other pod has.
//
//	hook Sandbox    --> handler supports it? --> range --fsync--> <root-dir>/pods/UID/userns --> CRI
//	hook Container  --> the same range, and all mounts are mapped to it
//	hook Release    --> the file is removed, the range is free
//
// The range is stored in a lease, a file in a kubelet's format. A pod keeps its range after a restart of the
// agent, in new sandboxes and after a reboot. It also keeps a range that a kubelet has allocated. Nothing is
// read, run or kept in memory before the first such pod.
//
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/
package userns
