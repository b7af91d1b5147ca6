// Package topology implements the topology manager. It reads the machine's topology and merges the hints of the CPU,
// memory and device managers. Only Read does I/O.
//
//	/sys --Read--> Machine: CPUs by core, cache, socket and NUMA node; memory and distances of nodes
//	hints of each resource --Policy.Merge--> the NUMA nodes for a container or pod, or a rejection
//
// https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/
package topology
