// Package cpumanager implements the CPU manager's policy "static", which assigns exclusive CPUs to containers. It
// does no I/O and has no state.
//
//	pod, container, topology, assigned CPUs --Hints--> possible NUMA nodes
//	                                        --Assign--> CPUs, or a kubelet's error
//
// Containers of guaranteed pods that request a whole number of CPUs get exclusive CPUs. All
// others share the rest.
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
package cpumanager
