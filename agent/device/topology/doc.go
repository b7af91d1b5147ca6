// Package topology knows where the CPUs and the memory of a machine are, and brings together
// what those who give away CPUs, memory and devices would like (the topology manager). It
// is pure but for Read.
//
//	/sys --Read--> Machine: CPUs by core, cache, socket and NUMA node; memory and distances of nodes
//	hints of each resource --Policy.Merge--> the NUMA nodes for a container or pod, or a refusal
//
// https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/
package topology
