// Package admit decides whether a pod may run on this node, before anything is
// made for it. It is pure.
//
//	pod, the pods admitted before it, Node --> Admit --> nil, or why not
//
// A pod that was admitted once stays so: admission is stored by the caller.
package admit
