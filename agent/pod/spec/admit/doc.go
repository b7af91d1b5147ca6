// Package admit decides whether a pod may run on this node, before any resource is created for it. It is pure.
//
//	pod, the pods admitted before it, Node --> Admit --> nil, or a Rejection
//
// Admission is an action of the plan. Package agent/pod/life/pods performs the action and stores the decision. The command islet check
// uses Unsupported, which applies the same rules to a pod without a node.
package admit
