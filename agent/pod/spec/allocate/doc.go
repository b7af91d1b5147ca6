// Package allocate decides whether a running pod may get other amounts of CPU and memory than at its
// admission (KEP-1287, KEP-5419). It is pure.
//
//	wanted pod, allocated pod, other pods, Node --> Decide --> nil, or a Refusal
//	waiting resizes --> Sort --> the order of the decisions
//	wanted pod, allocated resources --> Apply --> the pod that the node runs
//
// Allocation is an action of the plan. Package agent/pod/life/pods performs the action and stores the decision.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
package allocate
