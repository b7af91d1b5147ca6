// Package life contains the packages that bring pods to their wanted state.
//
//	pods      the wanted pods, the decisions about them, and their statuses
//	worker    one goroutine for each pod, which carries out the plan
//	observe   the last known state of each pod in the container runtime
//	features  the features of a pod's runtime handler
//	rebuild   rebuilds a lost store from the pods in the runtime
package life
