// Package memorymanager decides from which NUMA nodes containers get their memory (the
// policy "Static" of the memory manager). It is pure.
//
//	pod, container, nodes, what others have --Hints--> NUMA nodes that would do
//	                                        --Take--> nodes, or why not in a kubelet's words
//
// Containers of guaranteed pods get nodes with room for all that they ask for; those of all
// others may use any. A node from which several are used together is used with these only.
// https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/
package memorymanager
