// Package userns runs pods with hostUsers: false in a user namespace (KEP-127). Such a pod has a range of the host's
// user and group IDs that no other pod has, for its whole life.
//
//	hook Sandbox    --> can the handler? --> range --fsync--> <root-dir>/pods/UID/userns --> CRI
//	hook Container  --> the same range, and all mounts are mapped to it
//	hook Release    --> the file goes: the range is free
//
// The file is a lease in a kubelet's format. A pod keeps its range after a restart of the agent, in new sandboxes and
// after a reboot, also if a kubelet allocated the range. Before the first such pod, nothing is read, run or kept in
// memory.
//
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/
package userns
