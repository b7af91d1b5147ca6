// Package pinning assigns exclusive CPUs and NUMA nodes to containers. It connects the CPU,
// memory and topology managers with the store, admission and the runtime.
//
//	pod --Admit--> hints of devices, CPUs, memory --policy--> NUMA nodes --> draft --> device plugins --> rows in the store
//	container --Container--> its CPUs or the shared ones, its NUMA nodes
//	shared CPUs changed --Run--> running containers --UpdateContainerResources--> runtime
//	the pod has ended or is deleted --Ended, Release--> the rows are deleted
//
// A draft reserves the resources of a pod while its device plugins are called, so that no lock is held during these calls.
// The draft has no other effect before the rows are stored. If a plugin fails or the admission is abandoned, it ends. A pod
// that lacks resources is refused only if no draft has them: it waits until the drafts of other pods have ended. A pod that
// finds enough in the rest does not wait.
//
// The rows of a container are stored in the same transaction as its devices, before the container is created. The
// shared CPUs are all CPUs that no row assigns. Without a policy there is no Manager.
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
package pinning
