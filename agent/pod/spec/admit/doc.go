// Package admit decides whether a pod may run on this node, before anything is
// made for it. It is pure.
//
//	pod, the pods admitted before it, Node --> Admit --> nil, or why not
//
// The verdict is an action of the plan; agent/pod/life/pods makes it count and stores it.
package admit
