// Package userns gives pods with hostUsers: false a user namespace (KEP-127): a range of
// the host's user and group IDs that no other pod has, for as long as the pod lives.
//
//	hook Sandbox    --> can the handler? --> range --fsync--> <root-dir>/pods/UID/userns --> CRI
//	hook Container  --> the same range, and all mounts are mapped to it
//	hook Release    --> the file goes: the range is free
//
// The file is a lease, in a kubelet's own form: a pod keeps its range over restarts of the
// agent, new sandboxes and reboots, and also when a kubelet gave it. Nothing is read,
// run or kept in memory before the first such pod.
//
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/
package userns
