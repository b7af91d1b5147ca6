// Package memorymanager implements the memory manager's policy "Static", which assigns NUMA nodes to containers. It
// does no I/O and has no state.
//
//	pod, container, nodes, assigned memory --Hints--> possible NUMA nodes
//	                                       --Assign--> nodes, or a kubelet's error
//
// Containers of guaranteed pods get nodes with enough free memory for their requests. Other containers may use any node.
// If a container gets several nodes, these form a group: they are not assigned together with nodes outside of the group.
// https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/
package memorymanager
