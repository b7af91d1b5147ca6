// Package cpumanager decides which containers get which CPUs for themselves (the policy
// "static" of the CPU manager). It is pure.
//
//	pod, container, topology, what others have --Hints--> NUMA nodes that would do
//	                                          --Take--> CPUs, or why not in a kubelet's words
//
// Containers of guaranteed pods with a whole number of CPUs get some; all others share the
// rest. https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
package cpumanager
