// Package reserve works out what pods may have of a machine, and what is kept for the
// system, the node's own programs and evictions. It is pure.
//
//	kubeReserved, systemReserved, reservedSystemCPUs ---+
//	evictionHard --------------------------------------+--> Allocatable: the Node's, and admission's
//	capacity, huge pages, process IDs ------------------+--> Enforced: what kubepods is held to
//
// Nothing is kept by default but what evictionHard says, as with a kubelet.
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
package reserve
