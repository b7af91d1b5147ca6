// Package pinning gives containers CPUs and memory of their own: it joins the CPU, memory and
// topology managers with the store, admission, the runtime and those who ask.
//
//	pod --Admit--> hints of devices, CPUs, memory --policy--> NUMA nodes --> rows in the store
//	container --Container--> its CPUs or the shared ones, its NUMA nodes
//	what is shared changed --Run--> containers that run --UpdateContainerResources--> runtime
//	the pod is over, or gone --Ended, Release--> the rows go
//
// What a container has is a row, in the same transaction as its devices, before anything is
// made for it. What all others share follows from it. Without a policy there is no Manager.
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
package pinning
