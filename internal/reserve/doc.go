// Package reserve computes the resources of a machine that pods may use, and the resources that are
// reserved for the system, the node's own programs and evictions. It has no side effects.
//
//	kubeReserved, systemReserved, reservedSystemCPUs ---+
//	evictionHard --------------------------------------+--> Allocatable: for the Node and for admission
//	capacity, huge pages, process IDs ------------------+--> EnforcedLimits: the limits of the kubepods cgroup
//
// By default only the thresholds of evictionHard are reserved, as with a kubelet.
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
package reserve
